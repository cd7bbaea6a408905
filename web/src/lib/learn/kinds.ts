// The three kinds of attention on two sentences that say the same. The vectors are set by hand on a circle: words that mean
// the same thing point the same way.
import { softmax } from '../attention'
import type { Language } from '../i18n.svelte'

export const KINDS = ['encoder', 'decoder', 'cross'] as const
export type Kind = (typeof KINDS)[number]

export interface Sentence {
  language: Language
  words: string[]
  /** Direction of the word's meaning, in degrees. */
  angles: number[]
}

export const PAIR: Record<Language, Sentence> = {
  fr: {
    language: 'fr',
    words: ['le', 'chat', 'noir', 'dort', 'sur', 'le', 'tapis'],
    angles: [200, 20, 65, 110, 155, 200, 320],
  },
  en: {
    language: 'en',
    words: ['the', 'black', 'cat', 'sleeps', 'on', 'the', 'rug'],
    angles: [200, 65, 20, 110, 155, 200, 320],
  },
}

/** Who asks (rows) and who answers (columns). */
export function sides(kind: Kind, source: Sentence, target: Sentence): [Sentence, Sentence] {
  if (kind === 'encoder') return [source, source]
  return kind === 'decoder' ? [target, target] : [target, source]
}

/** softmax(length² · cos(angle_i − angle_j)); in a decoder's own attention only over j ≤ i. */
export function weights(kind: Kind, source: Sentence, target: Sentence, length: number): number[][] {
  const [asks, answers] = sides(kind, source, target)
  return asks.angles.map((a, i) => {
    const scores = answers.angles.map((b) => length ** 2 * Math.cos(((a - b) * Math.PI) / 180))
    const allowed = answers.angles.map((_, j) => kind !== 'decoder' || j <= i)
    return softmax(scores, 1, allowed)
  })
}
