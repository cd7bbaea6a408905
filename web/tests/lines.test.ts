import { describe, expect, test } from 'vitest'
import {
  collectLines,
  curveInSight,
  opacity,
  placeLines,
  startThreshold,
  strongestLine,
  thickness,
  type Choice,
} from '../src/lib/lines'
import { SiteWeights } from '../src/lib/payload'
import { isPair, rowsInSight, segmentOf, shownTokens } from '../src/lib/tokens'

/** Deterministic weights whose rows sum to 1, in their code. */
function random(heads: number, queries: number, keys: number, seed = 1): SiteWeights {
  let state = seed
  const next = () => ((state = (state * 1664525 + 1013904223) >>> 0), state / 2 ** 32)
  const code = Uint8Array.from({ length: heads * queries * keys }, () => Math.floor(255 * next() ** 3))
  const step = Float32Array.from({ length: heads * queries }, (_, row) => {
    const sum = code.slice(row * keys, (row + 1) * keys).reduce((a, b) => a + b, 0)
    return 1 / Math.max(1, sum)
  })
  return new SiteWeights(heads, queries, keys, step, code)
}
const range = (count: number) => Array.from({ length: count }, (_, i) => i)
const weights = random(3, 8, 10)
const all: Choice = { heads: range(3), queries: range(8), keys: range(10), min: 0, limit: 1e6 }

/** Every line one by one, the plain way. */
function plain(choice: Choice) {
  const found = []
  for (const head of choice.heads)
    for (const query of choice.queries)
      for (const key of choice.keys) {
        const weight = weights.at(head, query, key)
        if (weight > 0 && weight >= choice.min) found.push({ head, query, key, weight })
      }
  return found.sort((a, b) => a.weight - b.weight)
}

describe('lines', () => {
  test('are all weights from the threshold on, the weakest first', () => {
    for (const min of [0, 0.05, 0.2]) {
      const { lines, total } = collectLines(weights, { ...all, min })
      expect(lines.map((l) => l.weight)).toEqual(plain({ ...all, min }).map((l) => l.weight))
      expect(total).toBe(lines.length)
    }
  })
  test('beyond the limit are the strongest ones, and the total still counts every one', () => {
    for (const limit of [0, 1, 17, 100]) {
      const { lines, total } = collectLines(weights, { ...all, limit })
      const expected = limit ? plain(all).slice(-limit) : []
      expect(lines.map((l) => l.weight)).toEqual(expected.map((l) => l.weight))
      expect(total).toBe(plain(all).length)
    }
  })
  test('with a token in focus are only its own', () => {
    const from = collectLines(weights, { ...all, focus: { side: 'query', index: 4 } })
    expect(new Set(from.lines.map((l) => l.query))).toEqual(new Set([4]))
    const to = collectLines(weights, { ...all, focus: { side: 'key', index: 9 } })
    expect(new Set(to.lines.map((l) => l.key))).toEqual(new Set([9]))
  })
  test('in sight touch a row in sight with one end at least, and none twice', () => {
    const sight = { queries: [2, 4] as [number, number], keys: [5, 7] as [number, number] }
    const { lines } = collectLines(weights, { ...all, sight })
    const expected = plain(all).filter((l) => (l.query >= 2 && l.query < 4) || (l.key >= 5 && l.key < 7))
    expect(lines).toHaveLength(expected.length)
    expect(new Set(lines.map((l) => `${l.head} ${l.query} ${l.key}`)).size).toBe(expected.length)
  })
  test('thickness and opacity grow with the weight and never leave their range', () => {
    for (const grow of [thickness, opacity]) {
      expect(grow(0.6) - grow(0.3)).toBeCloseTo(grow(0.3) - grow(0), 6)
      expect(grow(1.2)).toBe(grow(1))
    }
    expect(opacity(1)).toBeLessThanOrEqual(1)
  })
})

describe('the place of a line', () => {
  const geometry = { left: 100, right: 300, rowHeight: 20, scrollTop: 40, height: 200 }
  const line = (head: number) => ({ head, query: 5, key: 2, weight: 0.5 })
  test('joins the rows of its tokens, wherever they stand in the columns', () => {
    const [link] = placeLines([line(0)], [3, 5], [2, 4], [0], geometry)
    expect(link).toMatchObject({ x0: 100, y0: 30 - 40, x1: 300, y1: 10 - 40 })
  })
  test('is drawn as far as it is in sight, on the same curve', () => {
    const link = { x0: 0, y0: -500, x1: 100, y1: 900, line: line(0) }
    const cut = curveInSight(link, 200)!
    expect([cut[1], cut[7]].map(Math.round)).toEqual([-8, 208])
    const point = (t: number, [a, b, c, d]: number[]) =>
      a! * (1 - t) ** 3 + 3 * b! * t * (1 - t) ** 2 + 3 * c! * t * t * (1 - t) + d! * t ** 3
    const y = point(0.5, [cut[1], cut[3], cut[5], cut[7]])
    const x = point(0.5, [cut[0], cut[2], cut[4], cut[6]])
    let t = 0
    while (point(t, [-500, -500, 900, 900]) < y) t += 1e-4
    expect(x).toBeCloseTo(point(t, [0, 50, 50, 100]), 1)
    const whole = curveInSight({ ...link, y0: 20, y1: 120 }, 200)!
    expect(whole.map(Math.round)).toEqual([0, 20, 50, 20, 50, 120, 100, 120])
    expect(curveInSight({ ...link, y0: 20, y1: 20 }, 200)).toEqual([0, 20, 50, 20, 50, 20, 100, 20])
    expect(curveInSight({ ...link, y0: 300, y1: 900 }, 200)).toBeNull()
  })
  test('fans the heads out inside the row', () => {
    const links = placeLines([line(0), line(1), line(2)], [5], [2], [0, 1, 2], geometry)
    const heights = links.map((link) => link.y0)
    expect(new Set(heights).size).toBe(3)
    expect(Math.max(...heights) - Math.min(...heights)).toBeLessThan(geometry.rowHeight)
    expect(heights[1]).toBe(10 - 40)
  })
})

test('the threshold to start with gives about a line for two rows, however flat the weights are', () => {
  const lines = (min: number) => plain({ ...all, min }).length
  const rows = 3 * 8
  const start = startThreshold(weights, all.queries, all.keys)
  expect(start).toBeGreaterThan(0)
  expect(lines(start)).toBeGreaterThanOrEqual(rows / 2)
  const higher = [0.3, 0.2, 0.1, 0.05].filter((min) => min > start)
  for (const min of higher) expect(lines(min)).toBeLessThan(rows / 2)
  const flat = new SiteWeights(1, 4, 200, new Float32Array(4).fill(5e-5), new Uint8Array(800).fill(100))
  expect(startThreshold(flat, range(4), range(200))).toBe(0)
})

describe('the tokens shown', () => {
  const pair = {
    tokens: ['[CLS]', 'a', 'b', '[SEP]', 'c', '[SEP]'],
    special: [true, false, false, true, false, true],
    segments: [0, 0, 0, 0, 1, 1],
  }
  test('are those of the sentence asked for, with or without special ones', () => {
    expect(shownTokens(pair, null, true)).toEqual([0, 1, 2, 3, 4, 5])
    expect(shownTokens(pair, null, false)).toEqual([1, 2, 4])
    expect(shownTokens(pair, segmentOf('ab', 'query'), true)).toEqual([0, 1, 2, 3])
    expect(shownTokens(pair, segmentOf('ab', 'key'), false)).toEqual([4])
  })
  test('make a pair only when both sentences are there', () => {
    expect(isPair(pair)).toBe(true)
    expect(isPair({ ...pair, segments: [1, 1, 1, 1, 1, 1] })).toBe(false)
  })
  test('in sight never leave the list', () => {
    expect(rowsInSight(0, 100, 20, 3)).toEqual([0, 3])
    expect(rowsInSight(45, 100, 20, 512)).toEqual([2, 8])
    expect(rowsInSight(45, 100, 20, 512, 4)).toEqual([0, 12])
    expect(rowsInSight(9000, 100, 20, 3)).toEqual([3, 3])
  })
})

test('the strongest line is the last that a full collection would draw', () => {
  expect(strongestLine(weights, all.heads, all.queries, all.keys)).toEqual(plain(all).at(-1))
  const nothing = new SiteWeights(1, 1, 2, new Float32Array(1), new Uint8Array(2))
  expect(strongestLine(nothing, [0], [0], [0, 1])).toBeNull()
})

test('lines of heads that were kept alone are those heads', () => {
  const some = new SiteWeights(3, 8, 10, weights.step, weights.code, [2, 5, 7])
  const named = collectLines(some, { ...all, heads: [5, 7] }).lines
  const places = collectLines(weights, { ...all, heads: [1, 2] }).lines
  expect(named).toEqual(places.map((line) => ({ ...line, head: line.head === 1 ? 5 : 7 })))
  expect(startThreshold(some, all.queries, all.keys)).toBe(startThreshold(weights, all.queries, all.keys))
  expect(strongestLine(some, [7], all.queries, all.keys)!.head).toBe(7)
})
