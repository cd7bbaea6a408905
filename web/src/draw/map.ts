// The map of a long text on a canvas: tiles where they are, a coarser picture of them until then, numbers in the cells
// where they fit. What the mask forbids stays transparent: the hatching of the style sheet shows through.
import { paintTile, tileSize, type Extent, type MapView, type Place, type Tile } from '../lib/map'
import type { Picture, TileStore } from '../lib/tiles'
import { FONT } from './style'

export interface MapDrawing {
  view: MapView
  extent: Extent
  places: Place[]
  /** Tiles of a finer level that stand in for those of `places` that are not here yet. */
  parts: Place[]
  top: number
  picture: Picture
  /** The weight that gets the last colour of the ramp. */
  max: number
  /** The ramp, as bytes r, g, b, … */
  colours: Uint8Array
  /** Beside the matrix, and where a tile is on its way. */
  paper: string
  panel: string
}

/** Pixels of the screen per cell from which hairlines, and from which numbers are drawn. */
const RULED = 9
export const NUMBERED = 44

/** Tiles as images, painted anew when the colours or their scale change. */
export class TileImages {
  private readonly images = new WeakMap<Tile, { key: string; canvas: HTMLCanvasElement }>()

  of(tile: Tile, max: number, colours: Uint8Array): HTMLCanvasElement {
    const key = `${max} ${colours.subarray(0, 3).join()} ${colours.subarray(-3).join()}`
    const found = this.images.get(tile)
    if (found?.key === key) return found.canvas
    const canvas = found?.canvas ?? document.createElement('canvas')
    canvas.width = tile.columns
    canvas.height = tile.rows
    const pixels = new ImageData(paintTile(tile, max, colours), tile.columns, tile.rows)
    canvas.getContext('2d')!.putImageData(pixels, 0, 0)
    this.images.set(tile, { key, canvas })
    return canvas
  }
}

export function drawMap(
  context: CanvasRenderingContext2D,
  store: TileStore,
  images: TileImages,
  drawing: MapDrawing,
): void {
  const { view, extent, places, top, picture, max, colours } = drawing
  const density = window.devicePixelRatio || 1
  const snap = (value: number) => Math.round(value * density) / density
  const x = (column: number) => snap((column - view.column) * view.scale)
  const y = (row: number) => snap((row - view.row) * view.scale)
  const [right, bottom] = [x(extent.columns), y(extent.rows)]
  context.imageSmoothingEnabled = false
  context.save()
  context.beginPath()
  context.rect(0, 0, Math.min(right, extent.width), Math.min(bottom, extent.height))
  context.clip()
  const boxOf = (place: Place) => {
    const block = 2 ** place.level
    const size = tileSize(place, extent.rows, extent.columns)
    const [column, row] = [place.column * 256 * block, place.row * 256 * block]
    const [left, top] = [x(column), y(row)]
    const box = [
      left,
      top,
      x(column + size.columns * block) - left,
      y(row + size.rows * block) - top,
    ] as const
    return { box, size }
  }
  for (const place of places) {
    const { box, size } = boxOf(place)
    const tile = store.get(picture, place)
    if (tile) {
      context.drawImage(images.of(tile, max, colours), ...box)
      continue
    }
    context.fillStyle = drawing.panel
    context.fillRect(...box)
    const above = store.above(picture, place, top)
    if (above) {
      context.clearRect(...box)
      const share = [(above.side * size.columns) / 256, (above.side * size.rows) / 256] as const
      context.drawImage(images.of(above.tile, max, colours), above.x, above.y, ...share, ...box)
    }
    context.imageSmoothingEnabled = true
    for (const part of drawing.parts.filter((finer) => contains(place, finer))) {
      const finer = store.get(picture, part)
      if (!finer) continue
      const inner = boxOf(part).box
      context.clearRect(...inner)
      context.drawImage(images.of(finer, max, colours), ...inner)
    }
    context.imageSmoothingEnabled = false
  }
  if (view.scale >= RULED) rule(context, drawing, x, y)
  context.restore()
  context.fillStyle = drawing.paper
  context.fillRect(right, 0, Math.max(0, extent.width - right), extent.height)
  context.fillRect(0, bottom, extent.width, Math.max(0, extent.height - bottom))
}

function contains(place: Place, finer: Place): boolean {
  const factor = 2 ** (place.level - finer.level)
  return Math.floor(finer.row / factor) === place.row && Math.floor(finer.column / factor) === place.column
}

function rule(
  context: CanvasRenderingContext2D,
  { view, extent, panel }: MapDrawing,
  x: (column: number) => number,
  y: (row: number) => number,
): void {
  context.fillStyle = panel
  const ends = [view.column + extent.width / view.scale, view.row + extent.height / view.scale] as const
  for (let column = Math.ceil(view.column); column < ends[0]; column++)
    context.fillRect(x(column) - 0.5, 0, 1, extent.height)
  for (let row = Math.ceil(view.row); row < ends[1]; row++) context.fillRect(0, y(row) - 0.5, extent.width, 1)
}

/** Exact weights of the cells in sight. */
export interface Numbers {
  row: number
  column: number
  columns: number
  weights: Float32Array
}

/** Write the weights into their cells, dark on light colours and light on dark ones. */
export function drawNumbers(
  context: CanvasRenderingContext2D,
  numbers: Numbers,
  { view, max }: MapDrawing,
  [onLow, onHigh]: [string, string],
  say: (weight: number) => string,
): void {
  context.font = `${Math.round(Math.min(16, view.scale * 0.28))}px ${FONT}`
  context.textAlign = 'center'
  context.textBaseline = 'middle'
  numbers.weights.forEach((weight, at) => {
    if (weight < 0) return
    const column = numbers.column + (at % numbers.columns) + 0.5 - view.column
    const row = numbers.row + Math.floor(at / numbers.columns) + 0.5 - view.row
    context.fillStyle = weight > 0.5 * max ? onHigh : onLow
    context.fillText(say(weight), column * view.scale, row * view.scale)
  })
}
