// Which lines are drawn, how thick, and where.
//
// Thickness and opacity both grow linearly with the weight, on one scale for all layers and heads. Of the lines that touch
// a token in sight, the strongest `limit` are drawn; `total` says how many there were.
import type { SiteWeights } from './payload'
import type { Token } from './tokens'

export interface Line {
  head: number
  query: number
  key: number
  weight: number
}

export interface LineSet {
  /** The weakest first, so that the strongest is drawn on top. */
  lines: Line[]
  total: number
}

export interface Choice {
  heads: number[]
  queries: number[]
  keys: number[]
  /** Weights below this are left out; 0 leaves out only weights that are 0. */
  min: number
  limit: number
  focus?: Token | null
  /** Rows in sight, [from, to) in `queries` and in `keys`; a line counts when one of its ends is in sight. */
  sight?: { queries: [number, number]; keys: [number, number] }
}

const BINS = 1024

export function collectLines(weights: SiteWeights, choice: Choice): LineSet {
  const histogram = new Uint32Array(BINS + 1)
  let total = 0
  visit(weights, choice, (_h, _q, _k, weight) => {
    histogram[bin(weight)]!++
    total++
  })
  let floor = BINS
  let above = 0
  while (floor > 0 && above + histogram[floor]! <= choice.limit) above += histogram[floor--]!
  const spilled = above + histogram[floor]! > choice.limit
  const lines: Line[] = []
  visit(weights, choice, (head, query, key, weight) => {
    if (bin(weight) >= floor) lines.push({ head, query, key, weight })
  })
  lines.sort((a, b) => a.weight - b.weight)
  return { lines: spilled ? lines.slice(-choice.limit) : lines, total }
}

function bin(weight: number): number {
  return Math.min(BINS, (weight * BINS) | 0)
}

type Visitor = (head: number, query: number, key: number, weight: number) => void

function visit(weights: SiteWeights, choice: Choice, see: Visitor): void {
  const { queries, keys, focus, sight } = choice
  const { step, code } = weights
  const min = Math.max(choice.min, 1e-9)
  const only = (list: number[], side: Token['side']) =>
    focus?.side === side ? list.filter((index) => index === focus.index) : list
  const rows = only(queries, 'query')
  const columns = only(keys, 'key')
  const [firstRow, endRow] = focus || !sight ? [0, rows.length] : sight.queries
  const near = focus || !sight ? columns : columns.slice(...sight.keys)
  for (const head of choice.heads)
    rows.forEach((query, position) => {
      const row = head * weights.queries + query
      const scale = step[row]!
      if (scale === 0) return
      const start = row * weights.keys
      for (const key of position >= firstRow && position < endRow ? columns : near) {
        const weight = code[start + key]! * scale
        if (weight >= min) see(head, query, key, weight)
      }
    })
}

const THRESHOLDS = [0.1, 0.05, 0.02, 0.01, 0.005]

/** A threshold that leaves something to see: 0.1, or less when fewer than two lines a row would reach it. */
export function startThreshold(weights: SiteWeights): number {
  const { step, code, keys } = weights
  const counts = THRESHOLDS.map(() => 0)
  code.forEach((value, at) => {
    const weight = value * step[(at / keys) | 0]!
    for (let i = THRESHOLDS.length - 1; i >= 0 && weight >= THRESHOLDS[i]!; i--) counts[i]!++
  })
  return THRESHOLDS.find((_, i) => counts[i]! >= 2 * weights.queries) ?? 0
}

/** Thickness in pixels of a line of this weight. */
export function thickness(weight: number): number {
  return 0.6 + 4.4 * Math.min(1, weight)
}

/** Opacity of a line of this weight. */
export function opacity(weight: number): number {
  return 0.12 + 0.83 * Math.min(1, weight)
}

export interface Geometry {
  /** Where lines leave the queries and reach the keys, in pixels. */
  left: number
  right: number
  rowHeight: number
  scrollTop: number
  height: number
}

export interface Link {
  x0: number
  y0: number
  x1: number
  y1: number
  line: Line
}

const FAN = 0.62

/** Place lines between the rows of their tokens. The heads that are shown leave a token side by side, as a fan. */
export function placeLines(
  lines: Line[],
  queries: number[],
  keys: number[],
  heads: number[],
  at: Geometry,
): Link[] {
  const rowOf = (list: number[]) => new Map(list.map((index, row) => [index, row]))
  const queryRow = rowOf(queries)
  const keyRow = rowOf(keys)
  const spread = heads.length > 1 ? (FAN * at.rowHeight) / (heads.length - 1) : 0
  const lane = new Map(heads.map((head, place) => [head, (place - (heads.length - 1) / 2) * spread]))
  const height = (row: number, head: number) =>
    (row + 0.5) * at.rowHeight - at.scrollTop + (lane.get(head) ?? 0)
  return lines.map((line) => ({
    x0: at.left,
    y0: height(queryRow.get(line.query)!, line.head),
    x1: at.right,
    y1: height(keyRow.get(line.key)!, line.head),
    line,
  }))
}

/** The x of both control points of a link's cubic curve: it leaves and arrives horizontally. */
export function bend(link: Link): number {
  return (link.x0 + link.x1) / 2
}
