// The seven words of the explorer, as the figures of the lessons need them.
import { exampleChosen, exampleVectors, exampleWords } from '../explore/example'
import type { Point } from '../explore/plane'
import type { Language } from '../i18n.svelte'

export interface Example {
  words: readonly string[]
  queries: Point[]
  keys: Point[]
  values: Point[]
  /** The word that the figures begin with. */
  chosen: number
}

export function example(language: Language): Example {
  const words = exampleWords(language)
  const vectors = words.map((word) => exampleVectors(word)!)
  return {
    words,
    queries: vectors.map(({ query }) => query),
    keys: vectors.map(({ key }) => key),
    values: vectors.map(({ value }) => value),
    chosen: exampleChosen(language),
  }
}
