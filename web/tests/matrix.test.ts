import { describe, expect, test } from 'vitest'
import {
  forbiddenBy,
  hit,
  layoutMatrix,
  matrixLabels,
  paintMatrix,
  stepCell,
  ticks,
  type Painting,
} from '../src/lib/matrix'
import { SiteWeights } from '../src/lib/payload'

const room = { width: 560, height: 520, rowLabel: 60, columnLabel: 60 }

describe('the layout', () => {
  test('names every row and column where they fit, and numbers them where they do not', () => {
    const small = layoutMatrix(12, 12, room)
    expect(small.labelled).toBe(true)
    const large = layoutMatrix(512, 512, room)
    expect(large.labelled).toBe(false)
    const texts = Array.from({ length: 512 }, (_, i) => `w${i}`)
    expect(matrixLabels(small, texts.slice(0, 12), texts.slice(0, 12)).rows.map((l) => l.text)).toContain(
      'w7',
    )
    expect(matrixLabels(large, texts, texts).columns.map((l) => l.text)).toEqual(
      ticks(512, large.cell).map(String),
    )
  })
  test('fits into its room for 1 to 8192 tokens, and for other numbers of queries than keys', () => {
    for (const [rows, columns] of [
      [1, 1],
      [3, 40],
      [40, 3],
      [100, 100],
      [512, 512],
      [8192, 8192],
    ] as const) {
      const layout = layoutMatrix(rows, columns, room)
      expect(layout.width).toBeLessThanOrEqual(room.width + 1)
      expect(layout.height).toBeLessThanOrEqual(room.height + 3)
      expect(layout.cell).toBeGreaterThan(0)
    }
  })
})

describe('the cell under a point', () => {
  const layout = layoutMatrix(5, 8, room)
  const { left, top, cell } = layout
  test('is found from its first to its last pixel', () => {
    expect(hit(layout, left, top)).toEqual({ row: 0, column: 0 })
    expect(hit(layout, left + 8 * cell - 0.01, top + 5 * cell - 0.01)).toEqual({ row: 4, column: 7 })
    expect(hit(layout, left + 2.5 * cell, top + 3.5 * cell)).toEqual({ row: 3, column: 2 })
  })
  test('is none outside', () => {
    expect(hit(layout, left - 1, top + 1)).toBeNull()
    expect(hit(layout, left + 8 * cell, top + 1)).toBeNull()
    expect(hit(layout, left + 1, top + 5 * cell)).toBeNull()
  })
})

test('arrow keys move one cell and stop at the border', () => {
  const layout = { rows: 3, columns: 4 }
  expect(stepCell({ row: 1, column: 1 }, 'ArrowRight', layout)).toEqual({ row: 1, column: 2 })
  expect(stepCell({ row: 0, column: 0 }, 'ArrowUp', layout)).toEqual({ row: 0, column: 0 })
  expect(stepCell({ row: 1, column: 1 }, 'End', layout)).toEqual({ row: 1, column: 3 })
  expect(stepCell({ row: 9, column: 9 }, '', layout)).toEqual({ row: 2, column: 3 })
  expect(stepCell({ row: 1, column: 1 }, 'x', layout)).toBeNull()
})

describe('the pixels', () => {
  const codes = [10, 0, 0, 0, 5, 5, 0, 0, 2, 3, 4, 1, 0, 0, 0, 9]
  const weights = new SiteWeights(1, 4, 4, new Float32Array(4).fill(0.1), Uint8Array.from(codes))
  const grey = Uint8Array.from({ length: 3 * 256 }, (_, i) => Math.floor(i / 3))
  const painting: Painting = {
    head: 0,
    queries: [0, 1, 2, 3],
    keys: [0, 1, 2, 3],
    max: 1,
    colours: grey,
    forbidden: () => false,
    limit: 100,
  }
  const red = (pixels: ReturnType<typeof paintMatrix>) => [...pixels.data].filter((_, i) => i % 4 === 0)
  test('show each weight on the ramp', () => {
    const pixels = paintMatrix(weights, painting)
    expect([pixels.width, pixels.height]).toEqual([4, 4])
    expect(red(pixels)).toEqual(codes.map((code) => Math.round((code / 10) * 255)))
  })
  test('show the strongest weight of their cells where there are fewer pixels than cells', () => {
    const pixels = paintMatrix(weights, { ...painting, limit: 2 })
    expect(red(pixels)).toEqual([10, 0, 3, 9].map((code) => Math.round((code / 10) * 255)))
  })
  test('are transparent where the mask forbids, which is not the colour of 0', () => {
    const pixels = paintMatrix(weights, { ...painting, forbidden: forbiddenBy(true, 4, 4) })
    const alpha = [...pixels.data].filter((_, i) => i % 4 === 3)
    expect(alpha).toEqual([255, 0, 0, 0, 255, 255, 0, 0, 255, 255, 255, 0, 255, 255, 255, 255])
  })
})

test('the causal rule aligns the last query with the last key, and is never assumed', () => {
  const step = forbiddenBy(true, 1, 8)
  expect(step(0, 7)).toBe(false)
  const square = forbiddenBy(true, 3, 3)
  expect([square(0, 0), square(0, 1), square(2, 2)]).toEqual([false, true, false])
  expect(forbiddenBy(false, 3, 3)(0, 2)).toBe(false)
})
