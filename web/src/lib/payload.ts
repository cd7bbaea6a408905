// What a page knows of a recording: a JSON header and one compressed chunk per site (DESIGN.md, "Payload").
//
//   chunk   = zlib( step: float32 little-endian (heads, q) · code: uint8 (heads, q, k) )
//   weight  = code · step[row], within `precision` of the weight that Python computes
//
// Where a site has learned sinks, k is one more than there are keys: the last column is the sink.

export interface Sequence {
  tokens: string[]
  special: boolean[]
  segments: number[]
  /** The first token that the model wrote itself, where it did. */
  generated_from?: number
}

export interface Site {
  name: string
  layer: number
  kind: string
  heads: number
  queries: string
  keys: string
  /** No query sees what comes after it. A decoder may let a prefix, such as an image, see itself: then false. */
  causal: boolean
  max_error: number | null
  bytes: number
  precision: number
  /** Too large to be sent whole: the page asks for tiles, rows and columns. */
  tiled?: boolean
  /** A learned sink takes a part of the weight: one more column after the last key. */
  sinks?: boolean
  /** Where only some heads were kept: their numbers in the model, ascending, and how many heads the model has. */
  head_numbers?: number[]
  all_heads?: number
  /** Where only the largest weights of each row were kept: how many. A weight of 0 is then one that was not. */
  kept?: number
}

export interface Provenance {
  kernel: string
  dtype: string
  device: string
  door: string
  rows_checked: number
  max_error: number | null
  created: string
  versions: Record<string, string>
  /** Whether the text was cut to what the model takes. */
  truncated?: boolean
  /** What else the recorder has to say: sentences by language, or as they were recorded. */
  notes?: Note[]
}

/** A sentence by language, or as it was recorded; `missing` when it says that a part of the run is. */
export type Note = string | { en: string; fr: string; missing?: boolean }

export interface Header {
  format: 'regard.payload'
  version: number
  /** Names this recording among those of one server, where there is a server. */
  id?: string
  text: string[]
  model: { name: string; class?: string; source?: string; licence?: string }
  provenance: Provenance
  sequences: Record<string, Sequence>
  sites: Site[]
}

/** The model's numbers of the heads of a site. */
export function headNumbers(site: Site): number[] {
  return site.head_numbers ?? Array.from({ length: site.heads }, (_, head) => head)
}

/** The weights of one site, still in their 8-bit code: 3 million weights take 3 MB, not 12. Heads have the model's numbers. */
export class SiteWeights {
  constructor(
    readonly heads: number,
    readonly queries: number,
    readonly keys: number,
    readonly step: Float32Array,
    readonly code: Uint8Array,
    readonly numbers: number[] = Array.from({ length: heads }, (_, head) => head),
  ) {}

  /** Where the row of `query` in `head` stands among all rows. */
  row(head: number, query: number): number {
    const place = this.numbers[head] === head ? head : this.numbers.indexOf(head)
    return place * this.queries + query
  }

  /** The weight that `query` of `head` gives to `key`. */
  at(head: number, query: number, key: number): number {
    const row = this.row(head, query)
    return this.code[row * this.keys + key]! * this.step[row]!
  }
}

/** A PayloadError's `reason` is a key under view.failed in the catalogues; the page says it in the reader's language. */
export class PayloadError extends Error {
  constructor(
    readonly reason: 'foreign' | 'newer' | 'damaged' | 'old_browser',
    detail = '',
  ) {
    super(detail ? `${reason}: ${detail}` : reason)
  }
}

/** `value` as a Header, or a PayloadError that says why it is none. */
export function checkHeader(value: unknown): Header {
  const header = value as Partial<Header> | null
  if (typeof header !== 'object' || header?.format !== 'regard.payload') throw new PayloadError('foreign')
  if (header.version !== 1) throw new PayloadError('newer', `version ${header.version}`)
  const { sites, sequences } = header
  if (!Array.isArray(sites) || sites.length === 0 || typeof sequences !== 'object')
    throw new PayloadError('damaged', 'no sites')
  for (const site of sites) {
    if (headNumbers(site).length !== site.heads) throw new PayloadError('damaged', `heads of ${site.name}`)
    for (const name of [site.queries, site.keys]) {
      const sequence = sequences[name]
      const length = sequence?.tokens.length
      if (!sequence || sequence.special.length !== length || sequence.segments.length !== length)
        throw new PayloadError('damaged', `site ${site.name}`)
    }
  }
  return header as Header
}

/** Undo zlib, with what the browser brings. */
export async function inflate(bytes: Uint8Array<ArrayBuffer>): Promise<ArrayBuffer> {
  if (typeof DecompressionStream === 'undefined') throw new PayloadError('old_browser')
  try {
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate'))
    return await new Response(stream).arrayBuffer()
  } catch (error) {
    throw new PayloadError('damaged', String(error))
  }
}

/** The weights of `site` from its chunk. */
export async function decodeChunk(
  chunk: Uint8Array<ArrayBuffer>,
  site: Site,
  sequences: Record<string, Sequence>,
): Promise<SiteWeights> {
  const queries = sequences[site.queries]!.tokens.length
  const keys = sequences[site.keys]!.tokens.length + (site.sinks ? 1 : 0)
  const rows = site.heads * queries
  const buffer = await inflate(chunk)
  if (buffer.byteLength !== rows * 4 + rows * keys)
    throw new PayloadError('damaged', `${site.name} has ${buffer.byteLength} bytes`)
  return new SiteWeights(
    site.heads,
    queries,
    keys,
    littleEndian(buffer, rows),
    new Uint8Array(buffer, rows * 4),
    headNumbers(site),
  )
}

function littleEndian(buffer: ArrayBuffer, count: number): Float32Array {
  if (new Uint8Array(new Uint16Array([1]).buffer)[0] === 1) return new Float32Array(buffer, 0, count)
  const view = new DataView(buffer)
  return Float32Array.from({ length: count }, (_, i) => view.getFloat32(4 * i, true))
}
