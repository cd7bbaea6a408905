// The mathematics of the figures against tests/golden/learn.json, which Python writes by the definitions.
import { describe, expect, test } from 'vitest'
import golden from '../../tests/golden/learn.json'
import { heads, LOOKS, SCORES } from '../src/lib/learn/heads'
import { linearWeights } from '../src/lib/learn/linear'
import { cells, count, reach, type Pattern } from '../src/lib/learn/patterns'
import { passVectors, WAYS } from '../src/lib/learn/positions'
import { pass } from '../src/lib/learn/stack'
import { slope } from '../src/lib/learn/variance'

const close = (found: readonly number[], expected: readonly number[], digits = 12) => {
  expect(found).toHaveLength(expected.length)
  found.forEach((x, i) => expect(x).toBeCloseTo(expected[i]!, digits))
}

test.each(golden.patterns)(
  'mask $name of width $width is regard’s',
  ({ name, length, width, ...expected }) => {
    const allowed = cells(name as Pattern, { length, width })
    expect(allowed.map((row) => row.map(Number).join(''))).toEqual(expected.rows)
    expect(count(allowed)).toBe(expected.count)
    for (const [i, first] of Object.entries(expected.reach))
      expect(reach(allowed, Number(i), 3)).toEqual(first)
  },
)

test.each(golden.bigbird)('BigBird of $length words computes as many cells as regard’s', (expected) => {
  const bigbird = cells('bigbird', expected)
  expect(count(bigbird)).toBe(expected.count)
  cells('global', expected).forEach((row, i) =>
    row.forEach((may, j) => may && expect(bigbird[i]![j]).toBe(true)),
  )
})

describe('positions', () => {
  test.each(WAYS)('%s', (way) => {
    const { outputs } = passVectors(golden.positions.vectors, way)
    outputs.forEach((row, i) => close(row, golden.positions.outputs[way][i]!))
  })
})

test('linear attention', () => {
  for (const { query, keys, weights } of golden.linear) close(linearWeights(query, keys), weights)
})

test('the size of the derivative of the softmax', () => {
  for (const given of golden.slopes) expect(slope(given.weights)).toBeCloseTo(given.slope, 12)
})

test.each(golden.stack)('the two blocks give the probabilities of the same matrices: %#', (given) => {
  const { vocabulary, probabilities } = pass(given.text, given.read, given.settings)
  const expected = new Map(given.vocabulary.map((word, u) => [word, given.probabilities[u]!]))
  expect([...vocabulary].sort()).toEqual([...given.vocabulary].sort())
  vocabulary.forEach((word, u) => expect(probabilities[u]).toBeCloseTo(expected.get(word)!, 12))
})

test.each(LOOKS)('every head’s score for “%s”', (look) => {
  close(
    heads().map(({ weight }) => SCORES[look](weight)),
    golden.heads[look],
  )
})
