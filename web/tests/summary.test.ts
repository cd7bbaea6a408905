import { expect, test } from 'vitest'
import { SiteWeights } from '../src/lib/payload'
import { rampEnd, readings, shareOf, talkative, weightsOf } from '../src/lib/summary'

// Two heads, three queries, three keys; every row sums to 1.
const rows = [
  [0.5, 0.3, 0.2],
  [0.8, 0.1, 0.1],
  [0.2, 0.2, 0.6],
  [0.1, 0.9, 0],
  [0.2, 0.6, 0.2],
  [0, 1, 0],
]
const weights = new SiteWeights(
  2,
  3,
  3,
  new Float32Array(6).fill(0.1),
  Uint8Array.from(rows.flat().map((weight) => Math.round(10 * weight))),
)

test('the share of special tokens is the mean over heads and rows of what they get', () => {
  expect(shareOf(weights, [0, 1], [0, 1, 2], [0])).toBeCloseTo(1.8 / 6, 6)
  expect(shareOf(weights, [0], [1], [0, 2])).toBeCloseTo(0.9, 6)
  expect(shareOf(weights, [0, 1], [0, 1, 2], [0, 1, 2])).toBeCloseTo(1, 6)
  expect(shareOf(weights, [], [0], [0])).toBe(0)
})

test('the weights of a token are means over heads, read along its row or its column', () => {
  const along = [...weightsOf(weights, [0, 1], { side: 'query', index: 0 }, [0, 1, 2])]
  expect(along.map((w) => w.toFixed(3))).toEqual(['0.300', '0.600', '0.100'])
  const down = [...weightsOf(weights, [1], { side: 'key', index: 1 }, [0, 2])]
  expect(down.map((w) => w.toFixed(3))).toEqual(['0.900', '1.000'])
})

test('readings name the strongest tokens first and the head that gives the most', () => {
  const [first, second] = readings(weights, [0, 1], { side: 'query', index: 0 }, [0, 1, 2], 2)
  expect(first).toMatchObject({ other: 1, head: 1 })
  expect(first!.most).toBeCloseTo(0.9, 6)
  expect(second).toMatchObject({ other: 0, head: 0 })
})

test('the head to start with is the one that reads other words most', () => {
  expect(talkative(weights, [0, 1, 2], [0, 1, 2])).toBe(1)
})

test('the ramp ends at the largest weight in sight; in long texts at the median of the rows', () => {
  expect(rampEnd(weights, 0, [0, 2], [0, 1])).toEqual({ max: expect.closeTo(0.5, 6), clipped: false })
  const long = new SiteWeights(
    1,
    101,
    2,
    new Float32Array(101).fill(0.01),
    Uint8Array.from({ length: 202 }, (_, i) => (i === 0 ? 100 : i % 2 ? 0 : 10)),
  )
  const indices = Array.from({ length: 101 }, (_, i) => i)
  expect(rampEnd(long, 0, indices, [0, 1])).toEqual({ max: expect.closeTo(0.1, 6), clipped: true })
})

test('heads that were kept alone are named by their numbers in the model', () => {
  const some = new SiteWeights(2, 3, 3, weights.step, weights.code, [4, 9])
  expect(talkative(some, [0, 1, 2], [0, 1, 2])).toBe(9)
  expect(shareOf(some, [4], [1], [0, 2])).toBeCloseTo(0.9, 6)
  expect(readings(some, [4, 9], { side: 'query', index: 0 }, [0, 1, 2], 1)[0]).toMatchObject({
    other: 1,
    head: 9,
  })
  expect(rampEnd(some, 9, [0, 1, 2], [0, 1, 2]).max).toBeCloseTo(1, 6)
})
