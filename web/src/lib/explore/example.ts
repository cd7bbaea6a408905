// The given sentence and its vectors, set by hand in one file that Python reads too.
import data from '../../../../src/regard/lessons/example.json'
import type { Language } from '../i18n.svelte'
import type { Point } from './plane'

/** What a word brings: its query, its key and its value. */
export interface Vectors {
  readonly query: Point
  readonly key: Point
  readonly value: Point
}

/** A head's own projections of these, each a turn in degrees, and its weight in the output projection. */
export interface Head {
  readonly query: number
  readonly key: number
  readonly value: number
  readonly mix: number
}

type Role = keyof typeof data.vectors

const roles = data.roles as Record<Language, Role[]>
const vectors = data.vectors as unknown as Record<Role, Vectors>

export const HEADS: readonly Head[] = data.heads.map((head) => ({
  query: head.query_turn,
  key: head.key_turn,
  value: head.value_turn,
  mix: 1,
}))
export const POSITION_SIZE = data.position_size
export const POSITION_TURN = data.position_turn

export const exampleWords = (language: Language): readonly string[] => data.words[language]
export const exampleChosen = (language: Language): number => roles[language].indexOf(data.chosen as Role)

/** The vectors of the example's words, in both languages: a word has one entry, however often it stands in the sentence. */
export function exampleVectors(word: string): Vectors | undefined {
  for (const language of ['fr', 'en'] as const) {
    const place = data.words[language].indexOf(word)
    if (place >= 0) return vectors[roles[language][place]!]
  }
  return undefined
}

/** Where the word at `place` of the example stands in the other language: the same role, the same one of its kind. */
export function twinPlace(place: number, from: Language, to: Language): number {
  const role = roles[from][place]
  const nth = roles[from].slice(0, place).filter((other) => other === role).length
  return roles[to].flatMap((other, i) => (other === role ? [i] : []))[nth] ?? place
}
