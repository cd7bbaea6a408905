// Everything that the explorer can show, as one value that never changes: each step makes a new one.
import type { Language } from '../i18n.svelte'
import {
  exampleChosen,
  exampleVectors,
  exampleWords,
  HEADS,
  POSITION_SIZE,
  POSITION_TURN,
  twinPlace,
  type Head,
  type Vectors,
} from './example'
import { polar, radians, rounded, type Point } from './plane'

export type Positions = 'none' | 'sinusoidal' | 'rotary'
export type Kind = keyof Vectors

export interface State {
  readonly words: readonly string[]
  /** By word: the same word has the same vectors, wherever it stands. */
  readonly vectors: Readonly<Record<string, Vectors>>
  /** Whose row is looked at. */
  readonly chosen: number
  /** Divides the scores: 0 and Infinity are its limits. */
  readonly temperature: number
  /** Whether scores are divided by √d_k. */
  readonly scaled: boolean
  readonly causal: boolean
  readonly positions: Positions
  /** Length of the sinusoidal vector that is added. */
  readonly size: number
  /** Radians by which rotary positions turn per word. */
  readonly turn: number
  /** How many heads compute (1 to 4), which of them the panels show, and what each does. */
  readonly headCount: number
  readonly head: number
  readonly heads: readonly Head[]
  readonly residual: boolean
  /** The experiment on √d_k: dimension and seed of its random vectors. */
  readonly dimension: number
  readonly seed: number
}

export const MIN_WORDS = 2
export const MAX_WORDS = 12
export const MAX_HEADS = 4
/** No vector on screen is longer. */
export const LONGEST = 3.2
export const DIMENSIONS = [2, 4, 8, 16, 32, 64, 128, 256, 512] as const

export function exampleState(language: Language): State {
  const words = exampleWords(language)
  return {
    words,
    vectors: Object.fromEntries(words.map((word) => [word, exampleVectors(word)!])),
    chosen: exampleChosen(language),
    temperature: 1,
    scaled: true,
    causal: false,
    positions: 'none',
    size: POSITION_SIZE,
    turn: POSITION_TURN,
    headCount: 1,
    head: 0,
    heads: HEADS,
    residual: false,
    dimension: 64,
    seed: 1,
  }
}

/** Vectors of a word by its text; own properties only, since anything may stand as a word. */
const known = (state: State, word: string): Vectors | undefined =>
  Object.hasOwn(state.vectors, word) ? state.vectors[word] : exampleVectors(word)

export const vectorsOf = (state: State, place: number): Vectors => state.vectors[state.words[place]!]!

/** One vector of the word at `place` set to `to` (and so of the same word elsewhere). */
export function moveVector(state: State, kind: Kind, place: number, to: Point): State {
  const word = state.words[place]!
  const moved = { ...state.vectors[word]!, [kind]: rounded(to) }
  return { ...state, vectors: { ...state.vectors, [word]: moved } }
}

/** What may stand as a word: no spaces, no commas, nothing invisible that would turn or hide its neighbours, at most 14
 *  characters. */
export const cleanWord = (text: string): string =>
  [...text.replace(/[\s,;\p{Cc}\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff]+/gu, '').normalize('NFC')]
    .slice(0, 14)
    .join('')

/** Vectors for a word that is not known yet: spread by the golden angle, so that new words do not sit on each other. */
export function newVectors(nth: number): Vectors {
  const angle = radians(20 + 137.508 * nth)
  const ring = 1.5 + 0.3 * (nth % 3)
  return {
    query: rounded(polar(angle + 0.9, 1.7)),
    key: rounded(polar(angle, ring)),
    value: rounded(polar(angle + 2, ring)),
  }
}

/** The word at `place` written anew. A known word brings its vectors; an unknown one takes over those of the old. */
export function renameWord(state: State, place: number, text: string): State {
  const word = cleanWord(text)
  const old = state.words[place]!
  if (word === '' || word === old) return state
  const vectors = known(state, word) ?? state.vectors[old]!
  const words = state.words.map((other, i) => (i === place ? word : other))
  return tidy({ ...state, words, vectors: { ...state.vectors, [word]: vectors } })
}

export function addWord(state: State, text: string): State {
  const word = cleanWord(text)
  if (word === '' || state.words.length >= MAX_WORDS) return state
  const vectors = known(state, word) ?? newVectors(Object.keys(state.vectors).length)
  const words = [...state.words, word]
  return { ...state, words, vectors: { ...state.vectors, [word]: vectors }, chosen: words.length - 1 }
}

export function removeWord(state: State, place: number): State {
  if (state.words.length <= MIN_WORDS) return state
  const words = state.words.filter((_, i) => i !== place)
  const chosen = Math.min(state.chosen > place ? state.chosen - 1 : state.chosen, words.length - 1)
  return tidy({ ...state, words, chosen })
}

/** Without vectors of words that are no longer there. */
function tidy(state: State): State {
  const vectors = Object.fromEntries(state.words.map((word) => [word, state.vectors[word]!]))
  return { ...state, vectors }
}

export const isExample = (words: readonly string[], language: Language): boolean =>
  words.join(' ') === exampleWords(language).join(' ')

/** The given sentence in the other language, with what was moved; a sentence of one's own stays as it is. */
export function translated(state: State, to: Language): State {
  const from: Language = to === 'fr' ? 'en' : 'fr'
  if (!isExample(state.words, from)) return state
  const words = exampleWords(to)
  const vectors = Object.fromEntries(
    state.words.map((word, i) => [words[twinPlace(i, from, to)]!, state.vectors[word]!]),
  )
  return { ...state, words, vectors, chosen: twinPlace(state.chosen, from, to) }
}

export function setHead(state: State, which: number, change: Partial<Head>): State {
  const heads = state.heads.map((head, i) => (i === which ? { ...head, ...change } : head))
  return { ...state, heads }
}

export function setHeadCount(state: State, headCount: number): State {
  return { ...state, headCount, head: Math.min(state.head, headCount - 1) }
}
