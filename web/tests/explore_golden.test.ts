// The explorer's mathematics against Python's: tests/golden/explore.json is written by Python (tests/test_explorer.py) for the
// states listed here. Their Python lines go the other way: tests/golden/explore_states.json is written by this file
// (UPDATE_GOLDEN=1 vitest run explore_golden) and run by pytest.
import { readFileSync, writeFileSync } from 'node:fs'
import { resolve } from 'node:path'
import { expect, test } from 'vitest'
import { softmax } from '../src/lib/attention'
import { decode } from '../src/lib/explore/codec'
import { compute } from '../src/lib/explore/compute'
import { experiment } from '../src/lib/explore/dimension'
import { convexHull } from '../src/lib/explore/hull'
import type { Point } from '../src/lib/explore/plane'
import { experimentCode, pythonCode, type Comments } from '../src/lib/explore/python'
import type { State } from '../src/lib/explore/state'
import { number, setLanguage, type Language } from '../src/lib/i18n.svelte'
import en from '../src/i18n/en.json'

const FRAGMENTS: [Language, string][] = [
  ['fr', ''],
  ['en', ''],
  ['fr', 'T=0'],
  ['fr', 'T=inf&word=3'],
  ['fr', 'T=0.31&scale=off&word=4'],
  ['fr', 'causal=on&word=1'],
  ['en', 'positions=sinusoidal&word=0'],
  ['fr', 'positions=rotary&causal=on&word=5'],
  ['fr', 'heads=3&head=2'],
  ['en', 'heads=4&head=4&positions=rotary&turn=0.35&turns2=30,-45.5,90,0.5&residual=on&causal=on&T=2.2'],
  ['en', 'heads=2&positions=sinusoidal&size=0.65&T=inf&causal=on'],
  ['fr', 'residual=on&v1=1.125,-0.4,1.7,1.9,-0.5,2.3&v0=0,0,0.4,-0.8,0.4,0.2'],
  ['en', 'words=un,"deux"&word=0&T=0.05'],
  ['en', 'words=the,quick,brown,fox,jumps,over,the,lazy,dog,and,then,sleeps&word=11&T=0&positions=rotary'],
]

const read = (name: string) =>
  JSON.parse(readFileSync(resolve(import.meta.dirname, `../../tests/golden/${name}`), 'utf-8'))
const stateOf = ([language, fragment]: [Language, string]): State =>
  decode(new URLSearchParams(fragment), language)
const comments = en.explore.code as Comments

function states() {
  const plain = (_: string, value: unknown) => (value === Infinity ? 'inf' : value)
  const shown = FRAGMENTS.map(([language, fragment]) => {
    const state = stateOf([language, fragment])
    return { language, fragment, state, code: pythonCode(state, comments) }
  })
  const experiments = ['', 'dk=2&seed=7', 'dk=512&seed=42'].map((fragment) => {
    const state = decode(new URLSearchParams(fragment), 'en')
    return { fragment, code: experimentCode(state, comments), ...experiment(state.dimension, state.seed, 7) }
  })
  return JSON.parse(JSON.stringify({ states: shown, experiments }, plain))
}

test('the states that Python reads are those of the page', () => {
  const file = resolve(import.meta.dirname, '../../tests/golden/explore_states.json')
  if (process.env.UPDATE_GOLDEN) writeFileSync(file, JSON.stringify(states(), null, 1) + '\n')
  expect(states()).toEqual(read('explore_states.json'))
})

interface Case {
  scores: number[]
  temperature: number | 'inf'
  allowed: boolean[]
  weights: number[]
}

test.each(read('explore.json').softmax as Case[])('softmax at temperature $temperature', (given) => {
  const { scores, temperature, allowed, weights } = given
  softmax(scores, temperature === 'inf' ? Infinity : temperature, allowed).forEach((w, j) =>
    expect(w).toBeCloseTo(weights[j]!, 12),
  )
})

test.each(FRAGMENTS.map((given, i) => [...given, i] as const))('%s #%s', (language, fragment, i) => {
  const { weights, outputs, result } = read('explore.json').states[i]
  const found = compute(stateOf([language, fragment]))
  near(
    found.heads.map((head) => head.weights),
    weights,
  )
  near(
    found.heads.map((head) => head.outputs),
    outputs,
  )
  near(found.final, result)
})

test.each(read('explore.json').hulls as { points: Point[]; corners: Point[] }[])('hull $#', (given) => {
  const { points, corners } = given
  const sorted = (hull: readonly Point[]) => [...hull].sort((a, b) => a[0] - b[0] || a[1] - b[1])
  expect(sorted(convexHull(points))).toEqual(sorted(corners))
})

test('the example says 0.58 and 0.24, in the figures that people read', () => {
  setLanguage('fr')
  const { weights } = compute(stateOf(['fr', ''])).heads[0]!
  expect(number(weights[1]![2]!)).toBe('0,58')
  expect(number(weights[1]![1]!)).toBe('0,24')
})

/** Equal to 1e-12, through any nesting. */
function near(found: unknown, expected: unknown): void {
  if (Array.isArray(expected)) {
    expect((found as unknown[]).length).toBe(expected.length)
    expected.forEach((item, i) => near((found as unknown[])[i], item))
  } else expect(found).toBeCloseTo(expected as number, 11)
}
