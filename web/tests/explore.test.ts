import { describe, expect, test } from 'vitest'
import { entropy } from '../src/lib/attention'
import { decode, encode } from '../src/lib/explore/codec'
import { compute, orbit, projected, unprojected } from '../src/lib/explore/compute'
import { experiment, measuredVariances } from '../src/lib/explore/dimension'
import { exampleVectors } from '../src/lib/explore/example'
import { begin, redo, settle, step, undo } from '../src/lib/explore/history'
import { convexHull, distanceOutside } from '../src/lib/explore/hull'
import { placeLabels } from '../src/lib/explore/labels'
import { direction, lineInSquare, turn, type Point } from '../src/lib/explore/plane'
import { normals, uniforms } from '../src/lib/explore/random'
import * as states from '../src/lib/explore/state'
import { DIMENSIONS, exampleState, type State } from '../src/lib/explore/state'
import { PLACES, placeOf, temperatureAt } from '../src/lib/explore/temperature'
import type { Language } from '../src/lib/i18n.svelte'
import { answering, isolated, whoAnswers } from '../src/views/explore/says'

const fr = exampleState('fr')
const row = (state: State, place = state.chosen) => compute(state).heads[state.head]!.weights[place]!
const best = (weights: readonly number[]) => weights.indexOf(Math.max(...weights))

/** A state drawn at random: words, vectors, temperature and switches. */
function anyState(seed: number): State {
  const next = uniforms(seed)
  const count = 2 + Math.floor(next() * 11)
  const numbers = normals(seed + 1000, 6 * count)
  const point = (at: number): Point => [numbers[at]!, numbers[at + 1]!]
  const words = Array.from({ length: count }, (_, i) => `w${Math.floor(next() * 9)}${i % 3}`)
  const vectors = Object.fromEntries(
    words.map((word, i) => [word, { query: point(6 * i), key: point(6 * i + 2), value: point(6 * i + 4) }]),
  )
  const headCount = 1 + Math.floor(next() * 4)
  return {
    ...fr,
    words,
    vectors,
    chosen: Math.floor(next() * count),
    temperature: [0, 0.01, 0.3, 1, 7, 100, Infinity][Math.floor(next() * 7)]!,
    scaled: next() < 0.5,
    causal: next() < 0.5,
    positions: (['none', 'sinusoidal', 'rotary'] as const)[Math.floor(next() * 3)]!,
    headCount,
    head: headCount - 1,
    heads: fr.heads.map((head) => ({ ...head, key: Math.round(next() * 360), mix: next() })),
  }
}

describe('what one sees', () => {
  test('turning the query changes who answers', () => {
    const query = fr.vectors.chat!.query
    const winners = [0, 90, 180, 270].map((angle) =>
      best(row(states.moveVector(fr, 'query', 1, turn(query, (angle * Math.PI) / 180)))),
    )
    expect(new Set(winners).size).toBe(4)
  })

  test('lengthening the query sharpens the answer', () => {
    const [x, y] = fr.vectors.chat!.query
    const entropies = [0.5, 1, 1.5, 2].map((f) =>
      entropy(row(states.moveVector(fr, 'query', 1, [f * x, f * y]))),
    )
    expect(entropies).toEqual([...entropies].sort((a, b) => b - a))
  })

  test('both le have the same weight until positions tell them apart', () => {
    for (const place of fr.words.keys()) expect(row(fr, place)[0]).toBe(row(fr, place)[5])
    for (const positions of ['sinusoidal', 'rotary'] as const) {
      const weights = row({ ...fr, positions })
      expect(Math.abs(weights[0]! - weights[5]!)).toBeGreaterThan(0.005)
    }
  })

  test.each(['fr', 'en'] as Language[])(
    'with rotary positions each article finds its own noun (%s)',
    (language) => {
      const state = { ...exampleState(language), positions: 'rotary' as const }
      const animal = language === 'fr' ? 1 : 2
      expect(best(row(state, 0))).toBe(animal)
      expect(best(row(state, 5))).toBe(6)
    },
  )

  test('under the causal mask the future has weight 0 and changes nothing', () => {
    const state = { ...fr, causal: true }
    compute(state).heads[0]!.weights.forEach((weights, i) => {
      expect(weights.slice(i + 1).every((w) => w === 0)).toBe(true)
    })
    const later = states.moveVector(state, 'value', 6, [3, 3])
    expect(compute(later).final.slice(0, 6)).toEqual(compute(state).final.slice(0, 6))
  })
})

test('no output leaves the hull of its values', () => {
  for (let seed = 1; seed <= 300; seed++) {
    const state = anyState(seed)
    for (const head of compute(state).heads) {
      const hull = convexHull(head.values)
      for (const output of [...head.outputs, ...orbit(state, head, 24)]) {
        expect(distanceOutside(output, hull)).toBeLessThan(1e-9)
      }
    }
  }
})

test('every row sums to 1', () => {
  for (let seed = 1; seed <= 100; seed++) {
    for (const { weights } of compute(anyState(seed)).heads) {
      for (const one of weights) expect(one.reduce((a, b) => a + b, 0)).toBeCloseTo(1, 12)
    }
  }
})

test('a vector that was dragged is where the reader put it, through every projection and position', () => {
  for (let seed = 1; seed <= 100; seed++) {
    const state = anyState(seed)
    for (const kind of ['query', 'key', 'value'] as const) {
      const set = unprojected(state, state.head, kind, state.chosen, [1.25, -0.5])
      const seen = projected(
        {
          ...state,
          vectors: { ...state.vectors, [state.words[state.chosen]!]: { ...fr.vectors.le!, [kind]: set } },
        },
        state.head,
        kind,
        state.chosen,
      )
      expect(seen[0]).toBeCloseTo(1.25, 12)
      expect(seen[1]).toBeCloseTo(-0.5, 12)
    }
  }
})

describe('address', () => {
  const link = (state: State, language: Language): URLSearchParams =>
    new URLSearchParams(
      Object.entries(encode(state, language)).filter((pair): pair is [string, string] => pair[1] !== null),
    )

  test('the plain page has a plain link, in both languages', () => {
    expect(link(fr, 'fr').toString()).toBe('')
    expect(link(exampleState('en'), 'en').toString()).toBe('')
  })

  test('every state comes back from its link as it was', () => {
    let state: State = {
      ...fr,
      temperature: 0.31,
      scaled: false,
      causal: true,
      positions: 'rotary',
      turn: 0.35,
    }
    state = states.moveVector(state, 'key', 5, [1.23456, -2])
    state = states.setHead(states.setHeadCount(state, 3), 1, { query: 33, mix: 0.4 })
    state = { ...states.addWord(state, 'enfin'), head: 2, residual: true, dimension: 512, seed: 12 }
    for (const temperature of [0, 0.31, Infinity]) {
      const one = { ...state, temperature }
      expect(decode(link(one, 'fr'), 'fr')).toEqual(one)
    }
    const short = states.removeWord(states.removeWord(fr, 6), 1)
    expect(decode(link(short, 'fr'), 'fr')).toEqual(short)
  })

  test('a broken link gives the example', () => {
    const broken =
      'words=&word=99&T=-1&heads=9&head=4&positions=sideways&v0=1,2&turns1=a&dk=3&seed=x&turn=-2&size=99'
    expect(decode(new URLSearchParams(broken), 'fr')).toEqual(fr)
  })

  test('words that name properties of objects are only words', () => {
    const odd = decode(new URLSearchParams('words=constructor,__proto__,toString,constructor'), 'en')
    expect(odd.words).toHaveLength(4)
    expect(decode(link(odd, 'en'), 'en').words).toEqual(odd.words)
    for (const { weights } of compute(odd).heads) expect(weights.flat().every(Number.isFinite)).toBe(true)
    expect(
      compute(states.renameWord(fr, 1, '__proto__'))
        .final.flat()
        .every(Number.isFinite),
    ).toBe(true)
  })
})

describe('words', () => {
  test('2 to 12 of them', () => {
    let state = fr
    for (let i = 0; i < 20; i++) state = states.addWord(state, `mot${i}`)
    expect(state.words).toHaveLength(states.MAX_WORDS)
    for (let i = 0; i < 20; i++) state = states.removeWord(state, 0)
    expect(state.words).toHaveLength(states.MIN_WORDS)
    expect(Object.keys(state.vectors)).toHaveLength(2)
    expect(state.chosen).toBeLessThan(2)
  })

  test('a word written anew keeps its vectors; written as a known word it takes that word’s', () => {
    expect(states.renameWord(fr, 1, 'chien').vectors.chien).toBe(fr.vectors.chat)
    const twice = states.renameWord(fr, 1, 'tapis')
    expect(row(twice)[1]).toBe(row(twice)[6])
  })

  test('a moved key moves wherever its word stands', () => {
    const { keys } = compute(states.moveVector(fr, 'key', 0, [1, 1])).heads[0]!
    expect(keys[0]).toEqual(keys[5])
  })

  test('the example follows the language with what was moved; a sentence of one’s own stays', () => {
    const moved = states.moveVector({ ...fr, chosen: 2 }, 'query', 2, [1, 1])
    const english = states.translated(moved, 'en')
    expect(english.words[english.chosen]).toBe('black')
    expect(english.vectors.black!.query).toEqual([1, 1])
    expect(states.translated(english, 'fr')).toEqual(moved)
    const own = states.addWord(fr, 'bien')
    expect(states.translated(own, 'en')).toBe(own)
    expect(exampleVectors('cat')).toEqual(exampleVectors('chat'))
  })
})

test('undo and redo go through the steps; one gesture is one step', () => {
  let history = begin(1)
  history = step(history, 2, 'drag')
  history = step(history, 3, 'drag')
  history = step(settle(history), 4, 'drag')
  expect([undo(history).present, undo(undo(history)).present]).toEqual([3, 1])
  expect(undo(undo(undo(history))).present).toBe(1)
  expect(redo(undo(history)).present).toBe(4)
  expect(redo(step(undo(history), 9)).present).toBe(9)
})

test('the slider reaches every temperature it names, and both limits', () => {
  expect(temperatureAt(0)).toBe(0)
  expect(temperatureAt(PLACES / 2)).toBe(1)
  expect(temperatureAt(PLACES)).toBe(Infinity)
  for (let place = 0; place <= PLACES; place++) expect(placeOf(temperatureAt(place))).toBe(place)
})

test('the line of equal score is perpendicular to the query and stays in the square', () => {
  const [a, b] = lineInSquare([1, 2], [3, 1], 3.6)!
  expect(3 * (b[0] - a[0]) + (b[1] - a[1])).toBeCloseTo(0, 12)
  expect(3 * a[0] + a[1]).toBeCloseTo(5, 12)
  expect(Math.max(...[...a, ...b].map(Math.abs))).toBeLessThanOrEqual(3.6 + 1e-12)
  expect(lineInSquare([9, 9], [1, 1], 3.6)).toBeNull()
  expect(lineInSquare([1, 1], [0, 0], 3.6)).toBeNull()
  expect(direction([0, -1])).toBe(270)
})

test('variance of q·k grows as d_k, and the unscaled softmax saturates', () => {
  measuredVariances(1).forEach((variance, i) => {
    // 300 pairs: the standard error of a variance is about √(2/300 + 6/(300 d)) ≤ 12 %.
    expect(variance / DIMENSIONS[i]!).toBeGreaterThan(0.6)
    expect(variance / DIMENSIONS[i]!).toBeLessThan(1.4)
  })
  const { unscaled, scaled } = experiment(512, 1, 7)
  expect(unscaled.gradient).toBeLessThan(0.05)
  expect(scaled.gradient).toBeGreaterThan(0.4)
})

test('the longest name stays inside, wherever its point is', () => {
  const name = 'w'.repeat(14)
  for (const at of [
    [5, 220],
    [220, 220],
    [435, 3],
    [2, 437],
  ] as Point[]) {
    const [label] = placeLabels([at], [name], 440)
    const width = name.length * 8.2 + 4
    const left = label!.x - { start: 0, middle: width / 2, end: width }[label!.anchor]
    expect(left).toBeGreaterThanOrEqual(-1e-9)
    expect(left + width).toBeLessThanOrEqual(440 + 1e-9)
    expect(label!.y).toBeLessThanOrEqual(437)
  }
})

test('the names of the example lie neither on each other nor outside', () => {
  const distinct = [...new Set(fr.words)]
  const at = distinct.map((word): Point => {
    const [x, y] = fr.vectors[word]!.key
    return [220 + 61 * x, 220 - 61 * y]
  })
  const labels = placeLabels(at, distinct, 440)
  for (const [i, one] of labels.entries()) {
    expect(one.x).toBeGreaterThan(0)
    expect(one.x).toBeLessThan(440)
    for (const other of labels.slice(i + 1)) {
      if (Math.abs(one.y - other.y) < 12) expect(Math.abs(one.x - other.x)).toBeGreaterThan(20)
    }
  }
})

describe('who answers, in one sentence', () => {
  const words = ['the', 'cat', 'the', 'rug']

  test('of two equal weights the sentence never names the first alone', () => {
    expect(answering([0.07, 0.58, 0.07, 0.28], 3)).toEqual([1, 3])
    expect(answering([0.1, 0.7, 0.1, 0.1], 3)).toEqual([1])
    expect(answering([0.3, 0.1, 0.3, 0.3], 2)).toEqual([0, 2, 3])
    expect(answering([0.2, 0.5, 0.2, 0.1], 3)).toEqual([1, 0, 2])
  })

  test('equal weights are said as such, and a future that is forbidden is not counted', () => {
    expect(whoAnswers('cat', words, [0.25, 0.25, 0.25, 0.25])).toBe(
      'cat asks: all 4 words answer alike, 25% each',
    )
    expect(whoAnswers('cat', words, [0.5, 0.5, 0, 0])).toBe('cat asks: the₁ 50%, cat 50%')
  })

  test('a word written from right to left does not turn the numbers after it', () => {
    expect(isolated('שלום')).toBe('\u2068שלום\u2069')
    expect(isolated('chat')).toBe('chat')
  })
})

test('a word holds nothing invisible that turns or hides its neighbours, and emoji stay whole', () => {
  expect(states.cleanWord('\u202eevil\u200b\u0007')).toBe('evil')
  expect(states.cleanWord('👨\u200d👩\u200d👧')).toBe('👨\u200d👩\u200d👧')
  expect(states.cleanWord('</script><img src=x>')).toBe('</script><imgs')
  expect([...states.cleanWord('a'.repeat(200))].length).toBe(14)
})
