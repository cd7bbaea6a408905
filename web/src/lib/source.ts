// Where a page's recording comes from: the page itself (an exported file) or the local application that served it.
import { decodeBase64 } from './base64'
import { checkHeader, PayloadError, type Header } from './payload'
import type { Fetch } from './tiles'

export interface Source {
  header: Header
  /** Whether there is an application that can record another text. */
  live: boolean
  chunk(index: number): Promise<Uint8Array<ArrayBuffer>>
  /** What a long recording is asked for bit by bit (tiles, rows, …); only from an application. */
  fetch?: Fetch
}

/** The application said no: one sentence of its own, and the kind of its error ("TooLong", …) with what belongs to it. */
export class Refused extends Error {
  constructor(
    sentence: string,
    readonly kind: string,
    readonly details: Record<string, unknown>,
  ) {
    super(sentence)
  }
}

export interface ModelChoice {
  name: string
  here?: boolean
}

/** The recording that an exported page carries in `text`, or null when it carries none. */
export function embedded(text: string | null | undefined): Source | null {
  let data: { kind?: string; header?: unknown; chunks?: string[] } | null
  try {
    data = JSON.parse(text?.trim() || 'null')
  } catch {
    throw new PayloadError('damaged', 'the data of this page is not JSON')
  }
  if (data === null) return null
  if (data.kind !== 'recording') throw new PayloadError('foreign')
  const header = checkHeader(data.header)
  const { chunks } = data
  if (!Array.isArray(chunks) || chunks.length !== header.sites.length)
    throw new PayloadError('damaged', 'chunks are missing')
  return { header, live: false, chunk: async (index) => decodeBase64(chunks[index]!) }
}

/** The recording that the application holds now, or null when it holds none yet. */
export async function current(): Promise<Source | null> {
  const response = await ask('api/recording')
  if (response.status === 204) return null
  const header: unknown = await response.json()
  return header === null ? null : served(checkHeader(header))
}

/** What is to be recorded: one text or two, the sentences of a refusal in `lang`. `run` is a name to ask for progress by. */
export interface Wish {
  text: string[]
  model: string
  truncate: boolean
  lang: string
  run: string
}

/** Record a text. A refusal is thrown as Refused; calling it off by `signal` ends the model's run. */
export async function recordText(wish: Wish, signal: AbortSignal): Promise<Source> {
  const response = await ask('api/record', {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(wish),
    signal,
  })
  return served(checkHeader(await response.json()))
}

/** How far something is: `total` is 0 where nobody knows. */
export interface Progress {
  what: string
  done: number
  total: number
}

/** How far the run of this name is, or null when it is not under way. */
export async function progressOf(run: string): Promise<Progress | null> {
  const response = await ask(`api/progress/${run}`)
  return response.status === 204 ? null : ((await response.json()) as Progress)
}

/** The models that the application offers. */
export async function models(): Promise<ModelChoice[]> {
  const answer: unknown = await (await ask('api/models')).json()
  const list = Array.isArray(answer) ? answer : ((answer as { models?: unknown[] } | null)?.models ?? [])
  return list.map((entry) => (typeof entry === 'string' ? { name: entry } : (entry as ModelChoice)))
}

/** The one-file page of the recording called `id`, as the application writes it. */
export async function exportedPage(id: string | undefined): Promise<string> {
  return (await ask(`api/export${query(id)}`)).text()
}

function query(id: string | undefined): string {
  return id ? `?recording=${encodeURIComponent(id)}` : ''
}

function served(header: Header): Source {
  return {
    header,
    live: true,
    fetch: (path, signal) => {
      const sign = path.includes('?') ? '&' : '?'
      return ask(`api/${path}${header.id ? `${sign}recording=${encodeURIComponent(header.id)}` : ''}`, {
        signal,
      })
    },
    chunk: async (index) =>
      new Uint8Array(await (await ask(`api/chunks/${index}${query(header.id)}`)).arrayBuffer()),
  }
}

async function ask(path: string, options: RequestInit = {}): Promise<Response> {
  const response = await fetch(path, { cache: 'no-store', ...options })
  if (response.ok) return response
  const body = (await response.json().catch(() => null)) as Record<string, unknown> | null
  const sentence = typeof body?.error === 'string' ? body.error : `${response.status} ${response.statusText}`
  throw new Refused(sentence, typeof body?.kind === 'string' ? body.kind : '', body ?? {})
}
