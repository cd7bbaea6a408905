// The heads of one sentence as recorded from a real model (heads.json says which, and how it was checked), and the scores by
// which they are ranked. w(i, j) is the weight that query i gives to key j.
import { decodeBase64 } from '../base64'
import recorded from './heads.json'

export const LOOKS = ['previous', 'next', 'first', 'noun', 'same'] as const
export type Look = (typeof LOOKS)[number]

export type Weights = (i: number, j: number) => number

export interface Head {
  layer: number
  head: number
  weight: Weights
}

export const provenance = recorded.provenance
export const tokens: readonly string[] = recorded.tokens
/** Adjective and its noun, as places in the sentence. */
export const pairs = recorded.adjective_noun as [number, number][]

/** All heads; a weight is code / 255, so within 0.002 of the recorded one. */
export function heads(): Head[] {
  const codes = decodeBase64(recorded.weights)
  const n = tokens.length
  return Array.from({ length: recorded.layers * recorded.heads }, (_, at) => ({
    layer: Math.floor(at / recorded.heads),
    head: at % recorded.heads,
    weight: (i, j) => codes[(at * n + i) * n + j]! / 255,
  }))
}

const mean = (numbers: readonly number[]) => numbers.reduce((sum, x) => sum + x, 0) / numbers.length
/** The words of the sentence, without the marks at its two ends. */
const inner = tokens.map((_, i) => i).slice(1, -1)

/** Places of the same word elsewhere in the sentence. */
const twins = (i: number) => inner.filter((j) => j !== i && tokens[j] === tokens[i])

/** How strongly a head looks in one way, at most 1. */
export const SCORES: Record<Look, (w: Weights) => number> = {
  previous: (w) => mean(inner.map((i) => w(i, i - 1))),
  next: (w) => mean(inner.map((i) => w(i, i + 1))),
  first: (w) => mean(inner.map((i) => w(i, 0))),
  // A head that always looks one word on finds every noun by accident: subtract what it gives to the neighbour elsewhere.
  noun: (w) => {
    const others = inner.filter((i) => !pairs.some(([adjective]) => adjective === i))
    return mean(pairs.map(([adjective, noun]) => w(adjective, noun))) - mean(others.map((i) => w(i, i + 1)))
  },
  same: (w) => {
    const repeated = inner.filter((i) => twins(i).length)
    return mean(repeated.map((i) => twins(i).reduce((sum, j) => sum + w(i, j), 0)))
  },
}

export interface Ranked extends Head {
  score: number
}

/** Heads from the one that looks that way most. */
export function ranked(all: readonly Head[], look: Look): Ranked[] {
  return all.map((head) => ({ ...head, score: SCORES[look](head.weight) })).sort((a, b) => b.score - a.score)
}
