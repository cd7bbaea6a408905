import { readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { ramp } from '../src/lib/colours'
import {
  axisTicks,
  cellAt,
  clampView,
  decodeTile,
  fitScale,
  fitView,
  LARGEST_CELL,
  levelFor,
  mapEnd,
  paintTile,
  panBy,
  pixelAt,
  reveal,
  roundUp,
  SIDE,
  tilesInSight,
  tileSize,
  topLevel,
  zoomAt,
  type Extent,
  type Tile,
} from '../src/lib/map'

const extent: Extent = { rows: 16_384, columns: 16_384, width: 560, height: 520 }

interface Golden {
  side: number
  queries: number
  keys: number
  tops: [number, number][]
  tiles: {
    level: number
    row: number
    column: number
    rows: number
    columns: number
    bytes: string
    sample: [number, number, number][]
  }[]
}
const file = new URL('../../tests/golden/tiles.json', import.meta.url)
const golden = JSON.parse(readFileSync(file, 'utf8')) as Golden

describe('what Python wrote', () => {
  test('has the sizes and levels that the page expects', () => {
    expect(SIDE).toBe(golden.side)
    for (const [count, top] of golden.tops) expect(topLevel(count, count)).toBe(top)
    for (const tile of golden.tiles)
      expect(tileSize(tile, golden.queries, golden.keys)).toEqual({ rows: tile.rows, columns: tile.columns })
  })
  test.each(golden.tiles.map((tile, at) => [at, tile] as const))(
    'tile %i reads the same here',
    (_at, tile) => {
      const bytes = new Uint8Array(Buffer.from(tile.bytes, 'base64')).buffer
      const decoded = decodeTile(bytes, tile.rows, tile.columns)!
      for (const [row, column, value] of tile.sample)
        expect(Math.fround(pixelAt(decoded, row, column))).toBeCloseTo(value, 7)
      expect(decodeTile(bytes, tile.rows, tile.columns + 1)).toBeNull()
    },
  )
})

describe('the window', () => {
  test('shows everything at first, however long the text is', () => {
    for (const rows of [1, 300, 1025, 16_384, 100_000]) {
      const e = { ...extent, rows, columns: rows }
      const view = fitView(e)
      expect(view.scale * rows).toBeLessThanOrEqual(520.001)
      const places = tilesInSight(view, levelFor(view.scale, 1, topLevel(rows, rows)), e)
      expect(places.length).toBeLessThanOrEqual(9)
      expect(places.length).toBeGreaterThan(0)
    }
  })
  test('keeps what lies under the pointer when it zooms', () => {
    let view = fitView(extent)
    const [x, y] = [200, 310]
    const before = cellAt(view, x, y, extent)!
    for (let i = 0; i < 5; i++) {
      view = zoomAt(view, 2, x, y, extent)
      const now = cellAt(view, x, y, extent)!
      expect(Math.abs(now.row - before.row)).toBeLessThanOrEqual(1)
      expect(Math.abs(now.column - before.column)).toBeLessThanOrEqual(1)
    }
  })
  test('never zooms beyond everything or beyond the largest cell, and never leaves the matrix', () => {
    const far = zoomAt(fitView(extent), 1e9, 5, 5, extent)
    expect(far.scale).toBe(LARGEST_CELL)
    expect(zoomAt(far, 1e-9, 0, 0, extent).scale).toBe(fitScale(extent))
    const left = panBy(far, 1e6, 1e6, extent)
    expect([left.row, left.column]).toEqual([0, 0])
    const right = panBy(far, -1e9, -1e9, extent)
    expect(right.row + extent.height / right.scale).toBeCloseTo(extent.rows, 6)
    expect(right.column + extent.width / right.scale).toBeCloseTo(extent.columns, 6)
    expect(clampView({ row: -4, column: NaN || 3, scale: 0 }, extent)).toEqual(fitView(extent))
  })
  test('moves no further than needed to show a cell', () => {
    const view = { row: 100, column: 100, scale: 10 }
    expect(reveal(view, 120, 120, extent)).toEqual(view)
    expect(reveal(view, 99, 120, extent)).toEqual({ ...view, row: 99 })
    expect(reveal(view, 120, 156, extent)).toEqual({ ...view, column: 101 })
  })
})

describe('levels and tiles', () => {
  test('a pixel of the map is no smaller than one of the screen, and less than twice as large', () => {
    for (const scale of [0.0052, 0.03, 0.24, 0.5, 0.9, 1, 3, 60])
      for (const density of [1, 2, 3]) {
        const level = levelFor(scale, density, 20)
        const pixel = 2 ** level * scale * density
        expect(pixel).toBeGreaterThanOrEqual(1 - 1e-6)
        expect(level === 0 || pixel < 2).toBe(true)
      }
  })
  test('the tiles in sight cover the window, those in the middle first', () => {
    const view = { row: 3000, column: 5000, scale: 0.25 }
    const level = levelFor(view.scale, 1, topLevel(extent.rows, extent.columns))
    const places = tilesInSight(view, level, extent)
    const cells = SIDE * 2 ** level
    for (const [row, column] of [
      [3000, 5000],
      [3000 + 520 / 0.25 - 1, 5000 + 560 / 0.25 - 1],
    ] as const)
      expect(places).toContainEqual({
        level,
        row: Math.floor(row / cells),
        column: Math.floor(column / cells),
      })
    const away = places.map((p) => Math.hypot(p.row - places[0]!.row, p.column - places[0]!.column))
    expect(Math.max(...away.slice(0, 2))).toBeLessThanOrEqual(Math.max(...away))
    expect(new Set(places.map((p) => `${p.row} ${p.column}`)).size).toBe(places.length)
  })
})

describe('colours', () => {
  const tile = (codes: number[], step: number): Tile => ({
    rows: 1,
    columns: codes.length,
    step,
    code: Uint16Array.from(codes),
  })
  test('end at a round number that almost all pixels stay below', () => {
    const many = Array.from({ length: 1000 }, (_, i) => (i < 5 ? 255 : 1 + (i % 20)))
    expect(mapEnd([tile(many, 0.001)], 1e-4)).toEqual({ max: 0.02, clipped: true })
    expect(mapEnd([tile([1, 101], 0.01)], 1e-4)).toEqual({ max: 1, clipped: false })
  })
  test('never make next to nothing look like much', () => {
    expect(mapEnd([tile([1, 2, 255], 1e-12)], 1 / 16_384).max).toBeCloseTo(1e-4, 9)
    expect(mapEnd([], 0.001)).toEqual({ max: 0.001, clipped: false })
    expect(mapEnd([tile([0, 0], 0)], 0.001).max).toBe(0.001)
  })
  test('round numbers are 1, 2 or 5 times a power of ten', () => {
    expect([0.011, 0.02, 0.3, 0.51, 1, 3e-5].map(roundUp)).toEqual([0.02, 0.02, 0.5, 1, 1, 5e-5])
  })
  test('forbidden pixels are transparent and weights are opaque', () => {
    const pixels = paintTile(tile([0, 1, 65_535], 1 / 65_534), 1, ramp('#ffffff', '#000000'))
    expect([...pixels]).toEqual([0, 0, 0, 0, 255, 255, 255, 255, 0, 0, 0, 255])
  })
})

test('an axis names positions that are far enough apart, all in sight', () => {
  for (const scale of [0.01, 0.2, 3, 14, 64]) {
    const ticks = axisTicks(500, 560, scale, 16_384, 44)
    expect(ticks.length).toBeLessThanOrEqual(560 / 44 + 2)
    expect(ticks.length).toBeGreaterThan(0)
    for (const at of ticks) expect(at).toBeLessThan(500 + 560 / scale)
    for (let i = 1; i < ticks.length; i++)
      expect((ticks[i]! - ticks[i - 1]!) * scale).toBeGreaterThanOrEqual(44 - 1e-9)
  }
})
