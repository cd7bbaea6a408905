// What is known of one attention that is too large to be sent whole, as far as somebody looked: what is asked for is
// called off as soon as something else is looked at.
import {
  BLOCK,
  linesAround,
  meansAround,
  readCells,
  readColumn,
  readLines,
  readRow,
  startMin,
  type Around,
} from '../../lib/long'
import type { Line } from '../../lib/lines'
import type { Source } from '../../lib/source'
import type { Fetch } from '../../lib/tiles'
import type { Token } from '../../lib/tokens'

const PAUSE = 60
const KEPT = 40
const FAINT = [0.01, 0.001]

export class Long {
  readonly fetch: Fetch
  /** What the token in focus shares with the others, once it is known. */
  around = $state.raw<Around | null>(null)
  /** Lines of the queries, 32 queries a block, as far as they were in sight. */
  private blocks = $state.raw<Map<number, Line[]>>(new Map())
  failure = $state.raw<unknown>(null)
  busy = $state(false)
  /** The weight of the cell that the map's crosshair is on. */
  exact = $state.raw<{ query: number; key: number; head: number; weight: number } | null>(null)
  private cellControl: AbortController | null = null
  private control: AbortController | null = null
  private asked = ''
  private readonly loading = new Map<number, AbortController>()

  constructor(
    source: Source,
    readonly site: number,
    private readonly heads: number,
  ) {
    this.fetch = source.fetch!
  }

  /** Ask for what `token` shares with the others; for a key in `head` only. */
  look(token: Token | null, head: number): void {
    const wish = token ? `${token.side} ${token.index} ${token.side === 'key' ? head : ''}` : ''
    if (wish === this.asked) return
    this.asked = wish
    this.control?.abort()
    this.control = null
    this.busy = false
    if (!token) {
      this.around = null
      return
    }
    const control = (this.control = new AbortController())
    this.busy = true
    setTimeout(() => void this.read(token, head, control), PAUSE)
  }

  private async read(token: Token, head: number, control: AbortController): Promise<void> {
    if (control.signal.aborted) return
    try {
      const { index } = token
      this.around =
        token.side === 'query'
          ? await readRow(this.fetch, this.site, index, control.signal)
          : await readColumn(this.fetch, this.site, head, index, control.signal)
      this.failure = null
    } catch (error) {
      if (control.signal.aborted) return
      this.failure = error
      this.asked = ''
    }
    if (this.control === control) this.busy = false
  }

  /** Whether `around` is about `token`. */
  knows(token: Token | null): token is Token {
    return token !== null && this.around?.side === token.side && this.around.index === token.index
  }

  numbers(token: Token, heads: number[]): Map<number, number> | null {
    return this.knows(token) ? meansAround(this.around!, heads) : null
  }

  linesOf(token: Token, heads: number[], min: number): Line[] {
    return this.knows(token) ? linesAround(this.around!, heads, min) : []
  }

  /** Ask for the lines of the queries in sight, and call off what has gone out of sight. */
  see([from, to]: [number, number]): void {
    const wanted: number[] = []
    for (let block = Math.floor(from / BLOCK); block * BLOCK < to; block++) wanted.push(block)
    for (const [block, control] of this.loading)
      if (!wanted.includes(block)) {
        control.abort()
        this.loading.delete(block)
      }
    for (const block of wanted) if (!this.blocks.has(block) && !this.loading.has(block)) void this.load(block)
  }

  private async load(block: number): Promise<void> {
    const control = new AbortController()
    this.loading.set(block, control)
    try {
      await new Promise((done) => setTimeout(done, PAUSE))
      if (control.signal.aborted) return
      const lines = await readLines(this.fetch, this.site, block, control.signal)
      const kept = [...this.blocks].slice(-KEPT)
      this.blocks = new Map([...kept, [block, lines]])
      this.failure = null
    } catch (error) {
      if (!control.signal.aborted) this.failure = error
    }
    if (this.loading.get(block) === control) this.loading.delete(block)
  }

  /** Weights below this draw no line, unless the reader says otherwise: little is left out of what one token reads. */
  min(focus: Token | null, sight: [number, number]): number {
    if (!focus) return startMin(this.linesInSight(sight, null, 0), this.heads)
    const most = this.knows(focus) ? Math.max(...this.around!.weights.flat()) : 1
    return FAINT.find((min) => min <= most) ?? 0
  }

  /** The strongest known lines of the queries in sight, the weakest first. */
  linesInSight([from, to]: [number, number], heads: number[] | null, min: number): Line[] {
    const lines: Line[] = []
    for (let block = Math.floor(from / BLOCK); block * BLOCK < to; block++)
      for (const line of this.blocks.get(block) ?? [])
        if (line.query >= from && line.query < to && line.weight >= min)
          if (!heads || heads.includes(line.head)) lines.push(line)
    return lines.sort((a, b) => a.weight - b.weight)
  }

  /** Ask for the weight of one cell; −1 where the mask forbids it, −2 where it was not kept. */
  async weigh(head: number, query: number, key: number): Promise<void> {
    this.cellControl?.abort()
    const control = (this.cellControl = new AbortController())
    try {
      const from = { row: query, column: key }
      const size = { rows: 1, columns: 1 }
      const [weight] = await readCells(this.fetch, this.site, head, from, size, control.signal)
      this.exact = { query, key, head, weight: weight! }
    } catch (error) {
      if (!control.signal.aborted) this.failure = error
    }
  }

  /** Call off everything that is on its way. */
  close(): void {
    this.control?.abort()
    this.cellControl?.abort()
    for (const control of this.loading.values()) control.abort()
  }
}
