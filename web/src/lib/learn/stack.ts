// A whole decoder of two blocks, small enough to set by hand and to compute in full. The vector of a word has five parts:
// which word it is, where it stands, which word came before it, and what attention and memory advise.
//
//   block 1, attention   looks one place back and notes the word that it finds there        (a "previous word" head)
//   block 2, attention   looks for a place whose noted word is the present one, and copies
//                        the word that stands there                                         (an "induction" head)
//   block 2, feed-forward one hidden unit a word, max(0, x): what followed it in a few sentences read before
//
// Each part is a fixed linear map (it picks a part of the vector), so Q, K, V, W_O are matrices of 0, 1 and one gain.
// Olsson et al. 2022 (induction heads); Geva et al. 2021 (feed-forward layers as memories).
import { attend, softmax } from '../attention'

export interface Settings {
  /** Add what a layer computes to what it was given, or replace it. */
  residual: boolean
  attention: boolean
  memory: boolean
  temperature: number
}

export interface Passed {
  vocabulary: string[]
  /** Weights (query, key) of each block's attention. */
  weights: [number[][], number[][]]
  /** What each source adds to the logit of each word of the vocabulary, for the last word. */
  fromAttention: number[]
  fromMemory: number[]
  probabilities: number[]
}

/** Sharpness of the two heads (a gain in W_Q), and how loudly either speaks about the next word. */
const GAIN = 12
const VOICE = 5

export const words = (text: string): string[] => text.toLowerCase().split(/\s+/).filter(Boolean)

/** followed[u][w]: the share of w among the words that came after u in the sentences. */
export function counts(sentences: readonly string[], vocabulary: readonly string[]): number[][] {
  const at = new Map(vocabulary.map((word, i) => [word, i]))
  const table = vocabulary.map(() => new Array<number>(vocabulary.length).fill(0))
  for (const sentence of sentences) {
    const read = words(sentence)
    read.slice(1).forEach((word, i) => (table[at.get(read[i]!)!]![at.get(word)!]! += 1))
  }
  return table.map((row) => {
    const total = row.reduce((sum, x) => sum + x, 0)
    return total ? row.map((x) => x / total) : row
  })
}

const oneHot = (place: number, size: number): number[] =>
  Array.from({ length: size }, (_, i) => (i === place ? 1 : 0))
const add = (a: readonly number[], b: readonly number[]) => a.map((x, i) => x + b[i]!)
const times = (gain: number, v: readonly number[]) => v.map((x) => gain * x)

export function pass(text: readonly string[], sentences: readonly string[], settings: Settings): Passed {
  const vocabulary = [...new Set([...sentences.flatMap(words), ...text])]
  const size = vocabulary.length
  const n = text.length
  const zero = new Array<number>(size).fill(0)
  const { residual, attention, memory, temperature } = settings

  let word = text.map((w) => oneHot(vocabulary.indexOf(w), size))
  let place = text.map((_, i) => oneHot(i, n))
  const allowed = text.map((_, i) => text.map((_, j) => j <= i))

  // Block 1. Query: the place before mine. Key: the place. Value: the word. Written to the part "before".
  const back = (i: number) => times(GAIN, [...place[i]!.slice(1), 0])
  const first = text.map((_, i) => attend(back(i), place, word, { scale: 1, allowed: allowed[i]! }))
  let before = attention ? first.map(({ output }) => output) : text.map(() => zero)
  if (!residual) {
    word = word.map(() => zero)
    place = place.map((p) => p.map(() => 0))
  }

  // Block 2. Query: the word. Key: the word before. Value: the word. Written to the part "advice".
  const second = text.map((_, i) =>
    attend(times(GAIN, word[i]!), before, word, { scale: 1, allowed: allowed[i]! }),
  )
  const advice = attention && n ? second[n - 1]!.output : zero
  if (!residual) {
    word = word.map(() => zero)
    before = before.map(() => zero)
  }

  // Feed-forward: hidden unit u = max(0, word_u); each writes the row of what followed u.
  const table = counts(sentences, vocabulary)
  const hidden = (n ? word[n - 1]! : zero).map((x) => Math.max(0, x))
  const recalled = memory ? hidden.reduce((sum, h, u) => add(sum, times(h, table[u]!)), zero) : zero

  const fromAttention = times(VOICE, residual ? advice : zero)
  const fromMemory = times(VOICE, recalled)
  return {
    vocabulary,
    weights: [first.map(({ weights }) => weights), second.map(({ weights }) => weights)],
    fromAttention,
    fromMemory,
    probabilities: softmax(add(fromAttention, fromMemory), temperature),
  }
}
