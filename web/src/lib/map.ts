// The map of one head: which tiles a window shows, at which level, and how the window moves. All in cells of the matrix.
//
//   level z: one pixel of a tile stands for 2^z × 2^z weights; a tile has 256 × 256 pixels
//   a point of the screen (x, y) lies in column = view.column + x / view.scale, row = view.row + y / view.scale
//
// tests/golden/tiles.json holds tiles that Python wrote, with the pixels that must be found in them.

export const SIDE = 256
/** Pixels of the screen that a cell has at most. */
export const LARGEST_CELL = 64
export const FORBIDDEN = -1

/** What a window shows: its upper left corner in cells, and pixels of the screen per cell. */
export interface MapView {
  row: number
  column: number
  scale: number
}

/** The matrix (rows, columns) and the window (width, height) that shows it. */
export interface Extent {
  rows: number
  columns: number
  width: number
  height: number
}

export interface Place {
  level: number
  row: number
  column: number
}

/** The level at which one tile shows everything. */
export function topLevel(rows: number, columns: number): number {
  return Math.max(0, Math.ceil(Math.log2(Math.max(rows, columns, 1) / SIDE)))
}

/** Pixels per cell when everything is in sight. */
export function fitScale({ rows, columns, width, height }: Extent): number {
  return Math.min(LARGEST_CELL, width / Math.max(1, columns), height / Math.max(1, rows))
}

export function fitView(extent: Extent): MapView {
  return { row: 0, column: 0, scale: fitScale(extent) }
}

/** `view` with a scale that is allowed and no empty margin that could be avoided. */
export function clampView(view: MapView, extent: Extent): MapView {
  const scale = Math.min(LARGEST_CELL, Math.max(fitScale(extent), view.scale))
  const within = (start: number, count: number, pixels: number) =>
    Math.max(0, Math.min(start, count - pixels / scale))
  return {
    row: within(view.row, extent.rows, extent.height),
    column: within(view.column, extent.columns, extent.width),
    scale,
  }
}

/** Zoom by `factor`; what lies under the point (x, y) stays there. */
export function zoomAt(view: MapView, factor: number, x: number, y: number, extent: Extent): MapView {
  const scale = Math.min(LARGEST_CELL, Math.max(fitScale(extent), view.scale * factor))
  return clampView(
    {
      row: view.row + y / view.scale - y / scale,
      column: view.column + x / view.scale - x / scale,
      scale,
    },
    extent,
  )
}

export function panBy(view: MapView, x: number, y: number, extent: Extent): MapView {
  return clampView({ ...view, row: view.row - y / view.scale, column: view.column - x / view.scale }, extent)
}

/** Move the window no further than needed to see a cell. */
export function reveal(view: MapView, row: number, column: number, extent: Extent): MapView {
  const along = (start: number, at: number, pixels: number) => {
    const shown = pixels / view.scale
    return at < start ? at : at + 1 > start + shown ? at + 1 - shown : start
  }
  return clampView(
    {
      ...view,
      row: along(view.row, row, extent.height),
      column: along(view.column, column, extent.width),
    },
    extent,
  )
}

/** The cell under a point, or null beside the matrix. */
export function cellAt(
  view: MapView,
  x: number,
  y: number,
  { rows, columns }: Extent,
): { row: number; column: number } | null {
  const row = Math.floor(view.row + y / view.scale)
  const column = Math.floor(view.column + x / view.scale)
  return row >= 0 && row < rows && column >= 0 && column < columns ? { row, column } : null
}

/** The finest level whose pixels are no smaller than those of the screen (`density` of them to a CSS pixel). */
export function levelFor(scale: number, density: number, top: number): number {
  return Math.max(0, Math.min(top, Math.ceil(-Math.log2(scale * density) - 1e-9)))
}

/** The tiles in sight, those in the middle first. */
export function tilesInSight(view: MapView, level: number, extent: Extent): Place[] {
  const cells = SIDE * 2 ** level
  const span = (start: number, pixels: number, count: number): [number, number] => [
    Math.floor(Math.max(0, start) / cells),
    Math.ceil(Math.min(count, start + pixels / view.scale) / cells),
  ]
  const [top, bottom] = span(view.row, extent.height, extent.rows)
  const [left, right] = span(view.column, extent.width, extent.columns)
  const middle = { row: (top + bottom - 1) / 2, column: (left + right - 1) / 2 }
  const away = (place: Place) => Math.hypot(place.row - middle.row, place.column - middle.column)
  const places: Place[] = []
  for (let row = top; row < bottom; row++)
    for (let column = left; column < right; column++) places.push({ level, row, column })
  return places.sort((a, b) => away(a) - away(b))
}

/** Pixels of a tile: fewer than 256 at the end of the matrix. */
export function tileSize(place: Place, rows: number, columns: number): { rows: number; columns: number } {
  const pixels = (at: number, count: number) =>
    Math.min(SIDE, Math.ceil(count / 2 ** place.level) - at * SIDE)
  return { rows: pixels(place.row, rows), columns: pixels(place.column, columns) }
}

/** A tile: weight = (code − 1) · step; code 0 = nothing may be read here. */
export interface Tile {
  rows: number
  columns: number
  step: number
  code: Uint16Array
}

/** A tile from the bytes that the application sends, or null when their number is wrong. */
export function decodeTile(bytes: ArrayBuffer, rows: number, columns: number): Tile | null {
  if (bytes.byteLength !== 4 + 2 * rows * columns) return null
  const view = new DataView(bytes)
  const code = new Uint16Array(rows * columns)
  for (let i = 0; i < code.length; i++) code[i] = view.getUint16(4 + 2 * i, true)
  return { rows, columns, step: view.getFloat32(0, true), code }
}

/** The weight of a pixel; −1 where the mask forbids all that it stands for. */
export function pixelAt(tile: Tile, row: number, column: number): number {
  const code = tile.code[row * tile.columns + column]!
  return code === 0 ? FORBIDDEN : (code - 1) * tile.step
}

const QUANTILE = 0.985
const SAMPLE = 40_000
const EPSILON = 1e-12

/**
 * The weight that gets the last colour: almost all pixels lie below it, so that a few that stand far above the others do
 * not make everything else blank. A round number (1, 2 or 5 times a power of ten), so that it does not flicker, and
 * no less than `least`, so that next to nothing does not look like much.
 */
export function mapEnd(tiles: Tile[], least: number): { max: number; clipped: boolean } {
  const every = Math.ceil(tiles.reduce((sum, tile) => sum + tile.code.length, 0) / SAMPLE)
  const sample: number[] = []
  let most = 0
  for (const { code, step } of tiles) {
    let largest = 0
    for (let i = 0; i < code.length; i++) {
      if (code[i]! > largest) largest = code[i]!
      if (code[i]! && i % every === 0) sample.push((code[i]! - 1) * step)
    }
    most = Math.max(most, (largest - 1) * step)
  }
  const high = Float32Array.from(sample).sort()[Math.floor(QUANTILE * sample.length)] ?? 0
  const max = Math.min(1, roundUp(Math.max(high, least)))
  return { max, clipped: most > max }
}

/** The next of …, 0.1, 0.2, 0.5, 1, … that is not below `value`. */
export function roundUp(value: number): number {
  if (!(value > EPSILON)) return EPSILON
  const power = 10 ** Math.floor(Math.log10(value) + 1e-9)
  const step = [1, 2, 5, 10].find((s) => s * power >= value * (1 - 1e-9))!
  return Number((step * power).toPrecision(3))
}

/** The pixels of a tile as r, g, b, a; forbidden ones stay transparent. */
export function paintTile(tile: Tile, max: number, colours: Uint8Array): Uint8ClampedArray<ArrayBuffer> {
  const count = colours.length / 3
  const lookup = new Uint32Array(count)
  const bytes = new Uint8Array(lookup.buffer)
  for (let i = 0; i < count; i++) bytes.set([...colours.subarray(3 * i, 3 * i + 3), 255], 4 * i)
  const scale = max > 0 ? ((count - 1) * tile.step) / max : 0
  const data = new Uint32Array(tile.code.length)
  tile.code.forEach((code, i) => {
    if (code) data[i] = lookup[Math.min(count - 1, Math.round((code - 1) * scale))]!
  })
  return new Uint8ClampedArray(data.buffer)
}

/** Positions to name along an axis: multiples of a round number that are `room` pixels apart, in sight. */
export function axisTicks(
  start: number,
  pixels: number,
  scale: number,
  count: number,
  room: number,
): number[] {
  const step = Math.max(1, Math.ceil(roundUp(room / scale)))
  const first = Math.max(0, Math.ceil(start / step - 0.5)) * step
  const ticks: number[] = []
  for (let at = first; at < Math.min(count, start + pixels / scale); at += step)
    if (at + 0.5 >= start) ticks.push(at)
  return ticks
}
