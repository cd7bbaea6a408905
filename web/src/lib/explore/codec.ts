// The state in the address: only what differs from the given example is written, so the plain page has a plain link.
//
//   words=le,chat,… · word=1 · T=0.5 (0, inf) · scale=off · causal=on · positions=rotary · size, turn · heads=2 · head=1
//   turns0=60,0,45,1 (query, key, value, weight in W_O) · v0=qx,qy,kx,ky,vx,vy of the first distinct word · residual=on
import type { Language } from '../i18n.svelte'
import { exampleVectors, HEADS, type Vectors } from './example'
import { rounded, type Point } from './plane'
import {
  addWord,
  cleanWord,
  DIMENSIONS,
  exampleState,
  isExample,
  MAX_HEADS,
  MAX_WORDS,
  MIN_WORDS,
  newVectors,
  type Positions,
  type State,
} from './state'

export type Fragment = Record<string, string | null>

const KINDS = ['query', 'key', 'value'] as const
const TURNS = ['query', 'key', 'value', 'mix'] as const

/** Every key that the explorer owns, null where the example's own value holds. */
export function encode(state: State, language: Language): Fragment {
  const example = exampleState(language)
  const unless = (same: boolean, text: string | number) => (same ? null : String(text))
  const out: Fragment = {
    words: unless(isExample(state.words, language), state.words.join(',')),
    word: unless(
      state.chosen === example.chosen && state.words.length === example.words.length,
      state.chosen,
    ),
    T: unless(state.temperature === 1, state.temperature === Infinity ? 'inf' : state.temperature),
    scale: unless(state.scaled, 'off'),
    causal: unless(!state.causal, 'on'),
    positions: unless(state.positions === 'none', state.positions),
    size: unless(state.size === example.size, state.size),
    turn: unless(state.turn === example.turn, state.turn),
    heads: unless(state.headCount === 1, state.headCount),
    head: unless(state.head === 0, state.head + 1),
    residual: unless(!state.residual, 'on'),
    dk: unless(state.dimension === example.dimension, state.dimension),
    seed: unless(state.seed === example.seed, state.seed),
  }
  HEADS.forEach((given, h) => {
    const head = state.heads[h]!
    const numbers = TURNS.map((name) => head[name])
    out[`turns${h + 1}`] = unless(
      TURNS.every((name) => head[name] === given[name]),
      numbers.join(','),
    )
  })
  const distinct = [...new Set(state.words)]
  for (let i = 0; i < MAX_WORDS; i++) {
    const word = distinct[i]
    out[`v${i}`] =
      word === undefined || sameVectors(state.vectors[word]!, exampleVectors(word))
        ? null
        : KINDS.flatMap((kind) => state.vectors[word]![kind]).join(',')
  }
  return out
}

/** The state that an address describes; what it does not say, or says wrongly, is as in the example. */
export function decode(params: URLSearchParams, language: Language): State {
  const example = exampleState(language)
  const given = (params.get('words') ?? '').split(',').map(cleanWord).filter(Boolean).slice(0, MAX_WORDS)
  let state = example
  if (given.length >= MIN_WORDS) {
    state = { ...example, words: [], vectors: {} }
    for (const word of given) state = addWord(state, word)
    state = { ...state, chosen: Math.min(example.chosen, given.length - 1) }
  }
  const vectors = Object.fromEntries(
    [...new Set(state.words)].map((word, i) => [
      word,
      readVectors(params.get(`v${i}`)) ?? exampleVectors(word) ?? newVectors(i),
    ]),
  )
  const heads = HEADS.map((head, h) => {
    const numbers = readNumbers(params.get(`turns${h + 1}`), TURNS.length)
    if (!numbers) return head
    return { query: numbers[0]!, key: numbers[1]!, value: numbers[2]!, mix: numbers[3]! }
  })
  const headCount = whole(params.get('heads'), 1, MAX_HEADS) ?? 1
  const positions = params.get('positions')
  const dimension = whole(params.get('dk'), 2, 512)
  return {
    ...state,
    vectors,
    heads,
    headCount,
    chosen: whole(params.get('word'), 0, state.words.length - 1) ?? state.chosen,
    temperature: readTemperature(params.get('T')),
    scaled: params.get('scale') !== 'off',
    causal: params.get('causal') === 'on',
    positions:
      positions === 'sinusoidal' || positions === 'rotary' ? (positions satisfies Positions) : 'none',
    size: real(params.get('size'), 0, 2) ?? example.size,
    turn: real(params.get('turn'), 0, Math.PI) ?? example.turn,
    head: (whole(params.get('head'), 1, headCount) ?? 1) - 1,
    residual: params.get('residual') === 'on',
    dimension: DIMENSIONS.find((known) => known === dimension) ?? example.dimension,
    seed: whole(params.get('seed'), 1, 9999) ?? example.seed,
  }
}

function sameVectors(a: Vectors, b: Vectors | undefined): boolean {
  return b !== undefined && KINDS.every((kind) => a[kind][0] === b[kind][0] && a[kind][1] === b[kind][1])
}

function readVectors(text: string | null): Vectors | null {
  const numbers = readNumbers(text, 6)
  if (!numbers || numbers.some((x) => Math.abs(x) > 10)) return null
  const point = (at: number): Point => rounded([numbers[at]!, numbers[at + 1]!])
  return { query: point(0), key: point(2), value: point(4) }
}

function readNumbers(text: string | null, count: number): number[] | null {
  const numbers = (text ?? '').split(',').map((part) => (part === '' ? NaN : Number(part)))
  return numbers.length === count && numbers.every(Number.isFinite) ? numbers : null
}

function real(text: string | null, from: number, to: number): number | null {
  const value = text === null || text === '' ? NaN : Number(text)
  return value >= from && value <= to ? value : null
}

function whole(text: string | null, from: number, to: number): number | null {
  const value = real(text, from, to)
  return value !== null && Number.isInteger(value) ? value : null
}

function readTemperature(text: string | null): number {
  return text === 'inf' ? Infinity : (real(text, 0, 1e6) ?? 1)
}
