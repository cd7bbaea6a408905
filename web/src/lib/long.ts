// What the application says of a recording that is too long to be sent whole: rows, columns, lines, cells.
import type { Fetch } from './tiles'
import type { Line } from './lines'
import type { Side } from './tokens'

/** A token and what it shares with the tokens on the other side that matter most to it. */
export interface Around {
  side: Side
  index: number
  heads: number[]
  /** Positions on the other side, ascending. */
  others: number[]
  /** weights[i][j]: of heads[i] with others[j]. */
  weights: number[][]
  /** What goes to all other keys together, for each of `heads`; only for a query. */
  outside: number[] | null
  /** What a learned sink takes, for each of `heads`, where there is one. */
  sinks: number[] | null
}

interface RowAnswer {
  heads: number[]
  keys: number[]
  weights: number[][]
  outside: number[]
  sinks?: number[]
}

interface LinesAnswer {
  head: number[]
  query: number[]
  key: number[]
  weight: number[]
}

/** Queries whose lines come together. */
export const BLOCK = 32

export async function readRow(
  fetch: Fetch,
  site: number,
  index: number,
  signal: AbortSignal,
): Promise<Around> {
  const answer = (await (await fetch(`rows/${site}/${index}?k=24`, signal)).json()) as RowAnswer
  return {
    side: 'query',
    index,
    heads: answer.heads,
    others: answer.keys,
    weights: answer.weights,
    outside: answer.outside,
    sinks: answer.sinks ?? null,
  }
}

export async function readColumn(
  fetch: Fetch,
  site: number,
  head: number,
  index: number,
  signal: AbortSignal,
): Promise<Around> {
  const answer = await (await fetch(`columns/${site}/${head}/${index}?k=64`, signal)).json()
  const { queries, weights } = answer as { queries: number[]; weights: number[][] }
  return { side: 'key', index, heads: [head], others: queries, weights, outside: null, sinks: null }
}

export async function readLines(
  fetch: Fetch,
  site: number,
  block: number,
  signal: AbortSignal,
): Promise<Line[]> {
  const path = `lines/${site}/${block * BLOCK}?count=${BLOCK}&k=6`
  const { head, query, key, weight } = (await (await fetch(path, signal)).json()) as LinesAnswer
  return head.map((h, i) => ({ head: h, query: query[i]!, key: key[i]!, weight: weight[i]! }))
}

/** What stands for a weight that was not kept. */
export const NOT_KEPT = -2

/** Exact weights of a small rectangle, row by row; −1 where the mask forbids, −2 where the weight was not kept. */
export async function readCells(
  fetch: Fetch,
  site: number,
  head: number,
  from: { row: number; column: number },
  size: { rows: number; columns: number },
  signal: AbortSignal,
): Promise<Float32Array> {
  const path = `cells/${site}/${head}/${from.row}/${from.column}?rows=${size.rows}&columns=${size.columns}`
  const bytes = new DataView(await (await fetch(path, signal)).arrayBuffer())
  return Float32Array.from({ length: bytes.byteLength / 4 }, (_, i) => bytes.getFloat32(4 * i, true))
}

/** The lines of a token that is looked at: those of `heads` that reach `min`, the weakest first. */
export function linesAround(around: Around, heads: number[], min: number): Line[] {
  const lines: Line[] = []
  around.heads.forEach((head, i) => {
    if (!heads.includes(head)) return
    around.others.forEach((other, j) => {
      const weight = around.weights[i]![j]!
      if (weight < Math.max(min, 1e-9)) return
      const [query, key] = around.side === 'query' ? [around.index, other] : [other, around.index]
      lines.push({ head, query, key, weight })
    })
  })
  return lines.sort((a, b) => a.weight - b.weight)
}

/** For each token on the other side, the mean weight over `heads`. */
export function meansAround(around: Around, heads: number[]): Map<number, number> {
  const rows = around.heads.flatMap((head, i) => (heads.includes(head) ? [i] : []))
  return new Map(
    around.others.map((other, j) => [other, meanOf(rows.map((i) => around.weights[i]![j]!))] as const),
  )
}

export function meanOf(values: number[]): number {
  return values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : 0
}

const THRESHOLDS = [0.3, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001]

/** A threshold that leaves about half as many lines as there are rows and heads, judged by some lines. */
export function startMin(lines: Line[], heads: number): number {
  const rows = new Set(lines.map((line) => line.query)).size
  const enough = (rows * heads) / 2
  return (
    THRESHOLDS.find((min) => lines.filter((line) => line.weight >= min).length >= enough) ??
    THRESHOLDS.at(-1)!
  )
}

/** A line whose other end is out of sight: where to jump, and how strong its strongest line is. */
export interface Stub {
  index: number
  weight: number
  head: number
}

/** The ends of `lines` on one side that lie before or after the rows in sight, the strongest first, each once. */
export function stubs(lines: Line[], side: Side, sight: [number, number]): { before: Stub[]; after: Stub[] } {
  const best = new Map<number, Stub>()
  for (const line of lines) {
    const index = side === 'query' ? line.query : line.key
    if (index >= sight[0] && index < sight[1]) continue
    if ((best.get(index)?.weight ?? -1) < line.weight)
      best.set(index, { index, weight: line.weight, head: line.head })
  }
  const sorted = [...best.values()].sort((a, b) => b.weight - a.weight || a.index - b.index)
  return {
    before: sorted.filter((stub) => stub.index < sight[0]),
    after: sorted.filter((stub) => stub.index >= sight[1]),
  }
}
