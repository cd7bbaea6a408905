// Which lines are drawn, how thick, and where.
//
// Thickness and opacity both grow linearly with the weight, on one scale for all layers and heads. Of the lines that touch
// a token in sight, the strongest `limit` are drawn; `total` says how many there were.
import type { SiteWeights } from './payload'
import { sampled, type Token } from './tokens'

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

// A histogram over the square root: fine where the many small weights are, so that few lines are sorted in the end.
const BINS = 4096

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
  return { lines: spilled ? lines.slice(lines.length - choice.limit) : lines, total }
}

function bin(weight: number): number {
  return Math.min(BINS, (Math.sqrt(weight) * BINS) | 0)
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
      const row = weights.row(head, query)
      const scale = step[row]!
      if (scale === 0) return
      const start = row * weights.keys
      for (const key of position >= firstRow && position < endRow ? columns : near) {
        const weight = code[start + key]! * scale
        if (weight >= min) see(head, query, key, weight)
      }
    })
}

const THRESHOLDS = [0.3, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005]

/**
 * A threshold that leaves something to see, and not everything: the largest that gives half as many lines as there are
 * rows, counted over all heads and up to 64 rows of each.
 */
export function startThreshold(weights: SiteWeights, queries: number[], keys: number[]): number {
  const rows = sampled(queries)
  const enough = (weights.heads * rows.length) / 2
  return THRESHOLDS.find((min) => reach(weights, rows, keys, min, enough)) ?? 0
}

/** Whether `enough` weights reach `min`. Rows whose largest possible weight stays below it are not looked at. */
function reach(
  weights: SiteWeights,
  queries: number[],
  keys: number[],
  min: number,
  enough: number,
): boolean {
  const { step, code } = weights
  let found = 0
  for (const head of weights.numbers)
    for (const query of queries) {
      const row = weights.row(head, query)
      const least = min / step[row]!
      if (!(least <= 255)) continue
      for (const key of keys) if (code[row * weights.keys + key]! >= least && ++found >= enough) return true
    }
  return false
}

/** The strongest line of all, or null when every weight is 0. */
export function strongestLine(
  weights: SiteWeights,
  heads: number[],
  queries: number[],
  keys: number[],
): Line | null {
  let best: Line | null = null
  let most = 0
  for (const head of heads)
    for (const query of queries) {
      const row = weights.row(head, query)
      const scale = weights.step[row]!
      if (255 * scale <= most) continue
      for (const key of keys) {
        const weight = weights.code[row * weights.keys + key]! * scale
        if (weight > most) [best, most] = [{ head, query, key, weight }, weight]
      }
    }
  return best
}

const DASHED = 300

/** Whether line `at` of `count`, the weakest first, shows its head's dash: among very many lines only the strongest do. */
export function isDashed(at: number, count: number): boolean {
  return count - at <= DASHED
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
  /** Of the keys, where they scroll by themselves. */
  keyScrollTop?: number
}

export interface Link {
  x0: number
  y0: number
  x1: number
  y1: number
  line: Line
}

// The fan takes this part of a row at most, and this many pixels from head to head.
const FAN = 0.62
const LANE = 4.5

/** Place lines between the rows of their tokens. The heads that are shown leave a token side by side, as a fan. */
export function placeLines(
  lines: Line[],
  queries: number[],
  keys: number[],
  heads: number[],
  at: Geometry,
): Link[] {
  const rowOf = (list: number[]) => {
    const rows = new Map(list.map((index, row) => [index, row]))
    return (index: number) => rows.get(index)!
  }
  return placeOnRows(lines, rowOf(queries), rowOf(keys), heads, at)
}

/** The same, where the rows of tokens are known by a rule: in a long text a token's row is its position. */
export function placeOnRows(
  lines: Line[],
  queryRow: (index: number) => number,
  keyRow: (index: number) => number,
  heads: number[],
  at: Geometry,
): Link[] {
  const spread = Math.min(LANE, (FAN * at.rowHeight) / Math.max(1, heads.length - 1))
  const lane = new Map(heads.map((head, place) => [head, (place - (heads.length - 1) / 2) * spread]))
  const height = (row: number, head: number, scrollTop: number) =>
    (row + 0.5) * at.rowHeight - scrollTop + (lane.get(head) ?? 0)
  return lines.map((line) => ({
    x0: at.left,
    y0: height(queryRow(line.query), line.head, at.scrollTop),
    x1: at.right,
    y1: height(keyRow(line.key), line.head, at.keyScrollTop ?? at.scrollTop),
    line,
  }))
}

/** A cubic curve: start, two control points, end, as x, y, x, y, … */
export type Curve = [number, number, number, number, number, number, number, number]

const BEYOND = 8

/**
 * The part of a link's curve that lies between 0 and `height`, or null when none does. A link leaves and arrives
 * horizontally: its height runs as s(t) = 3t² − 2t³, whose inverse is t = ½ − sin(asin(1 − 2s) / 3). Cutting matters in
 * long texts, where dashing the invisible 10,000 pixels of a line would cost most of the time.
 */
export function curveInSight(link: Link, height: number): Curve | null {
  const { x0, y0, x1, y1 } = link
  const [top, bottom] = [-BEYOND, height + BEYOND]
  if (Math.max(y0, y1) < top || Math.min(y0, y1) > bottom) return null
  const x = [x0, (x0 + x1) / 2, (x0 + x1) / 2, x1]
  const y = [y0, y0, y1, y1]
  const when = (at: number) => {
    const s = Math.min(1, Math.max(0, (at - y0) / (y1 - y0)))
    return 0.5 - Math.sin(Math.asin(1 - 2 * s) / 3)
  }
  const [from, to] = y0 === y1 ? [0, 1] : y0 < y1 ? [when(top), when(bottom)] : [when(bottom), when(top)]
  const points = [
    [from, from, from],
    [from, from, to],
    [from, to, to],
    [to, to, to],
  ] as [number, number, number][]
  return points.flatMap((at) => [blossom(x, at), blossom(y, at)]) as Curve
}

/** The blossom of a cubic: with one parameter three times, the point there; mixed, the control points of a part of it. */
function blossom(values: number[], at: [number, number, number]): number {
  let level = values
  for (const t of at) level = level.slice(1).map((value, i) => level[i]! + t * (value - level[i]!))
  return level[0]!
}
