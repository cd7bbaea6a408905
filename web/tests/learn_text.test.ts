// What the chapters say about their figures, asked of the figures.
import { describe, expect, test } from 'vitest'
import en from '../src/i18n/en.json'
import fr from '../src/i18n/fr.json'
import { attend } from '../src/lib/attention'
import { example } from '../src/lib/learn/example'
import { heads, ranked } from '../src/lib/learn/heads'
import { distance, linearWeights } from '../src/lib/learn/linear'
import { cells, count, reach } from '../src/lib/learn/patterns'
import { pass as passPositions } from '../src/lib/learn/positions'
import { price } from '../src/lib/learn/cost'
import { pass, words } from '../src/lib/learn/stack'
import { experiment } from '../src/lib/learn/variance'

const { words: seven, queries, keys, values } = example('en')
const at = (word: string) => seven.indexOf(word)
const cat = queries[at('cat')]!
const best = (weights: readonly number[]) => weights.indexOf(Math.max(...weights))

describe('chapter 1', () => {
  test('“black” takes 58 %, “cat” keeps 24 %', () => {
    const { weights } = attend(cat, keys, values)
    expect(weights[at('black')]).toBeCloseTo(0.58, 2)
    expect(weights[at('cat')]).toBeCloseTo(0.24, 2)
  })

  test('whoever asks for “rug” wakes “sleeps” before all others', () => {
    const length = Math.hypot(...cat)
    const [x, y] = keys[at('rug')]!
    const query = [x, y].map((c) => (length * c) / Math.hypot(x, y))
    const { weights } = attend(query, keys, values)
    expect(best(weights)).toBe(at('rug'))
    expect(best(weights.map((w, j) => (j === at('rug') ? 0 : w)))).toBe(at('sleeps'))
  })

  test('a query of no length hears everyone alike', () => {
    attend([0, 0], keys, values).weights.forEach((w) => expect(w).toBeCloseTo(1 / 7, 12))
  })
})

test('chapter 2: “sleeps” with the key (2; 0)', () => {
  const changed = keys.map((key, j) => (j === at('sleeps') ? [2, 0] : key))
  const { scores, weights } = attend(cat, changed, values)
  expect(scores[at('sleeps')]).toBeCloseTo(2.26, 2)
  expect(weights[at('sleeps')]).toBeCloseTo(0.28, 2)
  expect(weights[at('black')]).toBeCloseTo(0.42, 2)
  expect(attend(cat, keys, values).weights[at('rug')]).toBeCloseTo(0.006, 3)
})

test('chapter 3: at d = 1024 the undivided softmax gives almost all to one key, another one each time', () => {
  const runs = [1, 2, 3, 4, 5, 6].map((seed) => experiment([1024], 40, seed)[0]!)
  for (const { largest, slope } of runs) {
    expect(largest.raw).toBeGreaterThan(0.9)
    expect(largest.scaled).toBeLessThan(0.4)
    expect(slope.raw).toBeLessThan(slope.scaled / 3)
  }
  expect(new Set(runs.map(({ weights }) => best(weights.raw))).size).toBeGreaterThan(1)
})

test('chapter 4: “sleeps” chooses “cat” at T = 0, and every word takes one value unchanged', () => {
  for (const query of queries) {
    const { weights, output } = attend(query, keys, values, { temperature: 0 })
    expect(values).toContainEqual(output)
    if (query === queries[at('sleeps')]) expect(best(weights)).toBe(at('cat'))
  }
})

describe('chapter 5', () => {
  test('a window of 2 needs 8 layers over 15 places, with a global token two', () => {
    expect(reach(cells('window', { length: 16, width: 2 }), 15, 8)[0]).toBe(8)
    expect(Math.max(...reach(cells('global', { length: 16, width: 2 }), 15, 8).map((l) => l ?? 99))).toBe(2)
  })

  test('64 words: BigBird computes not quite twice the cells of the window; two layers against 32', () => {
    const [window, bigbird] = [
      cells('window', { length: 64, width: 2 }),
      cells('bigbird', { length: 64, width: 2 }),
    ]
    expect(count(bigbird) / count(window)).toBeGreaterThan(1.7)
    expect(count(bigbird) / count(window)).toBeLessThan(2)
    expect(count(bigbird)).toBeLessThan(64 ** 2 / 4)
    for (let i = 0; i < 64; i++)
      expect(Math.max(...reach(bigbird, i, 9).map((l) => l ?? 99))).toBeLessThanOrEqual(2)
    expect(reach(window, 0, 99)[63]).toBe(32)
  })
})

describe('chapter 7', () => {
  const named = ({ layer, head }: { layer: number; head: number }) => `${layer}.${head}`
  const all = heads()

  test('layer 0, head 2 looks at the word before with a score of 1.00; the next reaches a third', () => {
    const [first, second] = ranked(all, 'previous')
    expect(named(first!)).toBe('0.2')
    expect(first!.score.toFixed(2)).toBe('1.00')
    expect(second!.score).toBeCloseTo(1 / 3, 1)
  })

  test('layer 1, head 8 looks at the word after; layer 2, head 8 where an adjective stands', () => {
    expect(named(ranked(all, 'next')[0]!)).toBe('1.8')
    expect(named(ranked(all, 'noun')[0]!)).toBe('2.8')
  })

  test('most of the heads that rest on [CLS] are in later layers', () => {
    expect(
      ranked(all, 'first')
        .slice(0, 8)
        .filter(({ layer }) => layer >= 2).length,
    ).toBeGreaterThan(4)
  })
})

test('chapter 8: equal words have equal outputs until sinusoidal positions are on', () => {
  const [first, second] = [at('the'), seven.lastIndexOf('the')]
  const none = passPositions(seven, 'none').outputs
  expect(none[first]).toEqual(none[second])
  const waves = passPositions(seven, 'sinusoidal').outputs
  expect(waves[first]![0]).not.toBeCloseTo(waves[second]![0]!, 2)
})

describe('chapter 9', () => {
  test('a window of 64 reduces the work at 4096 words to a thirty-second; one of 4096 does not', () => {
    const size = { length: 4096, channels: 64, window: 64 }
    expect(price('full', size).work / price('window', size).work).toBeCloseTo(32, 0)
    expect(price('window', { ...size, window: 4096 }).work).toBe(price('full', size).work)
  })

  test('linear attention is nearest for a short query, and uneven for none', () => {
    const apart = (gain: number) => {
      const query = cat.map((x) => gain * x)
      return distance(attend(query, keys, values).weights, linearWeights(query, keys))
    }
    expect(Math.max(...linearWeights([0, 0], keys))).toBeGreaterThan(0.2)
    expect(apart(0.4)).toBeLessThan(apart(0))
    expect(apart(0.4)).toBeLessThan(apart(1))
    expect(apart(4)).toBeGreaterThan(0.5)
  })
})

describe.each([
  ['en', en, ['sleeps', 'watches'], 'felix'],
  ['fr', fr, ['noir', 'dort', 'regarde'], 'félix'],
] as const)('chapter 10 in %s', (_language, catalogue, remembered, name) => {
  const read = catalogue.learn.next.read.split('|')
  const text = ['⟨s⟩', ...words(catalogue.learn.next.text)]
  const settings = { residual: true, attention: true, memory: true, temperature: 1 }
  const next = (changes: Partial<typeof settings>, given = text) => {
    const { vocabulary, probabilities } = pass(given, read, { ...settings, ...changes })
    return vocabulary.map((word, u) => ({ word, p: probabilities[u]! })).sort((a, b) => b.p - a.p)
  }

  test('attention reads the name in the text', () => {
    expect(next({})[0]!.word).toBe(name)
  })

  test('without attention only the memory speaks', () => {
    const likely = next({ attention: false })
      .slice(0, remembered.length)
      .map(({ word }) => word)
    expect([...likely].sort()).toEqual([...remembered].sort())
  })

  test('without the residual nothing is known', () => {
    const all = next({ residual: false }).map(({ p }) => p)
    all.forEach((p) => expect(p).toBeCloseTo(1 / all.length, 12))
  })

  test('written on when cold, the text repeats itself', () => {
    let given = text
    for (let i = 0; i < 14; i++) given = [...given, next({ temperature: 0 }, given)[0]!.word]
    const turn = given.slice(-5).join(' ')
    expect(given.join(' ').split(turn).length).toBeGreaterThan(3)
  })
})
