// The matrix of one head: the size of its cells, where labels fit, which cell lies under a point, and its pixels.
//
// Where a cell is smaller than a pixel, a pixel shows the strongest weight of the cells that it covers.
import type { SiteWeights } from './payload'

export interface MatrixLayout {
  rows: number
  columns: number
  /** Side of a cell, in CSS pixels; may be below 1. */
  cell: number
  /** Space for labels left of and above the cells. */
  left: number
  top: number
  width: number
  height: number
  labelled: boolean
}

export interface Cell {
  row: number
  column: number
}

export interface Room {
  width: number
  height: number
  /** Widths of the widest labels, in pixels. */
  rowLabel: number
  columnLabel: number
}

const SMALLEST_LABELLED = 13
const LARGEST_CELL = 52
/** The widest label that a matrix makes room for, in pixels. */
export const LARGEST_LABEL = 104
const TICKS = 36
/** Column labels lean at this angle, so that they take little height and stay readable. */
export const LEAN = (-50 * Math.PI) / 180

export function layoutMatrix(rows: number, columns: number, room: Room): MatrixLayout {
  const fit = (left: number, top: number, overhang: number) =>
    Math.min(LARGEST_CELL, (room.width - left - overhang) / columns, (room.height - top) / rows)
  const left = Math.min(LARGEST_LABEL, room.rowLabel) + 8
  const slanted = Math.min(LARGEST_LABEL, room.columnLabel)
  const top = Math.ceil(slanted * Math.sin(-LEAN)) + 14
  const overhang = Math.ceil(slanted * Math.cos(LEAN))
  const labelledCell = fit(left, top, overhang)
  const labelled = labelledCell >= SMALLEST_LABELLED
  let cell = labelled ? labelledCell : fit(TICKS, 24, 4)
  if (cell > 1) cell = Math.floor(cell)
  cell = Math.max(cell, 0.01)
  const origin = labelled ? { left, top, overhang } : { left: TICKS, top: 24, overhang: 4 }
  return {
    rows,
    columns,
    cell,
    left: origin.left,
    top: origin.top,
    width: origin.left + columns * cell + origin.overhang,
    height: origin.top + rows * cell + 2,
    labelled,
  }
}

/** The cell under a point of the picture, or null. */
export function hit(layout: MatrixLayout, x: number, y: number): Cell | null {
  const column = Math.floor((x - layout.left) / layout.cell)
  const row = Math.floor((y - layout.top) / layout.cell)
  return row >= 0 && row < layout.rows && column >= 0 && column < layout.columns ? { row, column } : null
}

/** Positions to number along an axis that has no room for words: 0, 50, 100, … */
export function ticks(count: number, cell: number, room = 40): number[] {
  const step = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000].find((s) => s * cell >= room) ?? count
  return Array.from({ length: Math.ceil(count / step) }, (_, i) => i * step)
}

export interface Label {
  text: string
  x: number
  y: number
  /** The row or column that it names. */
  at: number
}

/** Labels of rows (end-aligned, centred on y) and of columns (leaning, starting at x, y): words, or numbers of positions. */
export function matrixLabels(layout: MatrixLayout, rowTexts: string[], columnTexts: string[]) {
  const { cell, left, top } = layout
  const middle = (at: number) => (at + 0.5) * cell
  const rowsAt = layout.labelled ? rowTexts.map((_, at) => at) : ticks(rowTexts.length, cell)
  const columnsAt = layout.labelled ? columnTexts.map((_, at) => at) : ticks(columnTexts.length, cell)
  const say = (texts: string[], at: number) => (layout.labelled ? texts[at]! : String(at))
  return {
    rows: rowsAt.map((at): Label => ({ text: say(rowTexts, at), x: left - 6, y: top + middle(at), at })),
    columns: columnsAt.map((at): Label => ({
      text: say(columnTexts, at),
      x: left + middle(at),
      y: top - 6,
      at,
    })),
  }
}

export interface Pixels {
  width: number
  height: number
  data: Uint8ClampedArray<ArrayBuffer>
}

export interface Painting {
  head: number
  queries: number[]
  keys: number[]
  /** The weight that gets the last colour of the ramp. */
  max: number
  /** Colours as bytes r, g, b, … from weight 0 to `max`. */
  colours: Uint8Array
  /** Whether a causal rule forbids this cell: it stays transparent, so that it can not be taken for a weight of 0. */
  forbidden: (query: number, key: number) => boolean
  /** At most this many pixels on a side. */
  limit: number
}

/** The cells as pixels: one pixel a cell, or fewer when there are more cells than `limit`. */
export function paintMatrix(weights: SiteWeights, painting: Painting): Pixels {
  const { queries, keys, colours, head } = painting
  const width = Math.max(1, Math.min(keys.length, painting.limit))
  const height = Math.max(1, Math.min(queries.length, painting.limit))
  const strongest = new Float32Array(width * height).fill(-1)
  const across = keys.map((_, column) => Math.floor((column * width) / keys.length))
  queries.forEach((query, row) => {
    const line = Math.floor((row * height) / queries.length) * width
    const source = weights.row(head, query)
    const scale = weights.step[source]!
    const start = source * weights.keys
    for (let column = 0; column < keys.length; column++) {
      const key = keys[column]!
      if (painting.forbidden(query, key)) continue
      const at = line + across[column]!
      const weight = weights.code[start + key]! * scale
      if (weight > strongest[at]!) strongest[at] = weight
    }
  })
  const data = new Uint8ClampedArray(4 * width * height)
  const last = colours.length / 3 - 1
  strongest.forEach((weight, at) => {
    if (weight < 0) return
    const share = painting.max > 0 ? Math.min(weight, painting.max) / painting.max : 0
    const from = 3 * Math.round(share * last)
    data.set(colours.subarray(from, from + 3), 4 * at)
    data[4 * at + 3] = 255
  })
  return { width, height, data }
}

/** Whether a causal rule forbids `key` to `query`; the last query sees the last key (bottom-right). */
export function forbiddenBy(causal: boolean, queries: number, keys: number) {
  return (query: number, key: number): boolean => causal && key > query + keys - queries
}

/** The cell that an arrow key leads to, always inside the matrix; null for a key that moves nothing ('' stays). */
export function stepCell(cell: Cell, key: string, layout: { rows: number; columns: number }): Cell | null {
  const moves: Record<string, [number, number]> = {
    ArrowUp: [-1, 0],
    ArrowDown: [1, 0],
    ArrowLeft: [0, -1],
    ArrowRight: [0, 1],
    '': [0, 0],
    Home: [0, -Infinity],
    End: [0, Infinity],
    PageUp: [-10, 0],
    PageDown: [10, 0],
  }
  const move = moves[key]
  if (!move) return null
  const within = (value: number, count: number) => Math.max(0, Math.min(count - 1, value))
  return {
    row: within(cell.row + move[0], layout.rows),
    column: within(cell.column + move[1], layout.columns),
  }
}
