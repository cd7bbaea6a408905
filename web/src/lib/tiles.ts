// Tiles of the map on their way: a few are asked for at a time, those that went out of sight are called off, and those
// looked at last are kept.
import { decodeTile, tileSize, type Place, type Tile } from './map'
import { PayloadError } from './payload'

/** Ask the application for `path`; given up when `signal` says so. */
export type Fetch = (path: string, signal: AbortSignal) => Promise<Response>

/** Of which picture a tile is a part. */
export interface Picture {
  site: number
  head: number
  reduce: 'max' | 'mean'
  rows: number
  columns: number
}

const AT_ONCE = 3
const KEPT = 240

export class TileStore {
  private readonly kept = new Map<string, Tile>()
  private readonly running = new Map<string, AbortController>()
  private wanted: { picture: Picture; place: Place; name: string }[] = []
  /** What went wrong with a tile in sight, until the next attempt. */
  failure: unknown = null

  constructor(
    private readonly fetch: Fetch,
    private readonly changed: () => void,
  ) {}

  get(picture: Picture, place: Place): Tile | null {
    const name = nameOf(picture, place)
    const found = this.kept.get(name)
    if (!found) return null
    this.kept.delete(name)
    this.kept.set(name, found)
    return found
  }

  /** The nearest tile above `place` that is here, with the part of it that shows the same: left, top and side in pixels. */
  above(
    picture: Picture,
    place: Place,
    top: number,
  ): { tile: Tile; x: number; y: number; side: number } | null {
    for (let up = 1; place.level + up <= top; up++) {
      const factor = 2 ** up
      const row = Math.floor(place.row / factor)
      const column = Math.floor(place.column / factor)
      const tile = this.get(picture, { level: place.level + up, row, column })
      const side = 256 / factor
      if (tile)
        return {
          tile,
          x: (place.column - column * factor) * side,
          y: (place.row - row * factor) * side,
          side,
        }
    }
    return null
  }

  /** From now on these are wanted, in this order; whatever else is on its way is called off. */
  want(picture: Picture, places: Place[]): void {
    this.failure = null
    this.wanted = places.map((place) => ({ picture, place, name: nameOf(picture, place) }))
    const names = new Set(this.wanted.map((w) => w.name))
    for (const [name, control] of this.running)
      if (!names.has(name)) {
        control.abort()
        this.running.delete(name)
      }
    this.next()
  }

  /** How many of those wanted are not here yet. */
  get missing(): number {
    return this.wanted.filter(({ name }) => !this.kept.has(name)).length
  }

  private next(): void {
    for (const { picture, place, name } of this.wanted) {
      if (this.running.size >= AT_ONCE) return
      if (this.kept.has(name) || this.running.has(name)) continue
      const control = new AbortController()
      this.running.set(name, control)
      void this.load(picture, place, name, control)
    }
  }

  private async load(picture: Picture, place: Place, name: string, control: AbortController): Promise<void> {
    try {
      const bytes = await (await this.fetch(name, control.signal)).arrayBuffer()
      const { rows, columns } = tileSize(place, picture.rows, picture.columns)
      const tile = decodeTile(bytes, rows, columns)
      if (!tile) throw new PayloadError('damaged', name)
      this.kept.set(name, tile)
      if (this.kept.size > KEPT) this.kept.delete(this.kept.keys().next().value!)
    } catch (error) {
      if (control.signal.aborted) return
      this.failure = error
      this.wanted = this.wanted.filter((w) => w.name !== name) // not again by itself
    }
    this.running.delete(name)
    this.next()
    this.changed()
  }
}

function nameOf({ site, head, reduce }: Picture, { level, row, column }: Place): string {
  return `tiles/${site}/${head}/${level}/${row}/${column}?reduce=${reduce}`
}
