// Self-attention over a handful of words with each way of telling it their order. Without one, shuffling the words shuffles
// the outputs and changes nothing else.
import { attend, type Vector } from '../attention'
import { normals } from '../explore/random'

export const WAYS = ['none', 'sinusoidal', 'rotary', 'alibi'] as const
export type Way = (typeof WAYS)[number]
export const CHANNELS = 8

/** PE(p, 2c) = sin(p / 10000^(2c/d)), PE(p, 2c+1) = cos(…)  (Vaswani et al. 2017). */
export function sinusoidal(position: number, channels: number): number[] {
  return Array.from({ length: channels }, (_, c) => {
    const angle = position / 10000 ** ((c - (c % 2)) / channels)
    return c % 2 === 0 ? Math.sin(angle) : Math.cos(angle)
  })
}

/** Turns the pairs (c, c + d/2) by position · 10000^(−2c/d)  (Su et al. 2021, the layout in halves). */
export function rotate(vector: Vector, position: number): number[] {
  const half = vector.length / 2
  const out = [...vector]
  for (let c = 0; c < half; c++) {
    const angle = position * 10000 ** ((-2 * c) / vector.length)
    const [a, b] = [vector[c]!, vector[c + half]!]
    out[c] = a * Math.cos(angle) - b * Math.sin(angle)
    out[c + half] = a * Math.sin(angle) + b * Math.cos(angle)
  }
  return out
}

/** One vector a word: equal words get equal vectors, drawn from the letters alone. */
export function embedding(word: string, channels = CHANNELS): number[] {
  let seed = 2166136261
  for (const letter of word) seed = Math.imul(seed ^ letter.codePointAt(0)!, 16777619)
  return [...normals(seed, channels)]
}

export interface Passed {
  weights: number[][]
  outputs: number[][]
}

const ALIBI_SLOPE = 0.5

/** One head with Q = K = V = x: positions enter before it (sinusoidal), in queries and keys (rotary) or in the scores
 *  (ALiBi, Press et al. 2022: score − slope · distance). */
export function passVectors(plain: readonly Vector[], way: Way): Passed {
  const x =
    way === 'sinusoidal' ? plain.map((v, p) => v.map((a, c) => a + sinusoidal(p, v.length)[c]!)) : plain
  const turned = way === 'rotary' ? x.map((v, p) => rotate(v, p)) : x
  const rows = turned.map((query, i) => {
    if (way !== 'alibi') return attend(query, turned, x)
    // The bias rides along as one more channel: (q, 1) · (k, −slope·|i−j|·√d) keeps the score one product.
    const root = Math.sqrt(query.length)
    const biased = turned.map((key, j) => [...key, -ALIBI_SLOPE * Math.abs(i - j) * root])
    return attend([...query, 1], biased, x, { scale: 1 / root })
  })
  return { weights: rows.map((row) => row.weights), outputs: rows.map((row) => row.output) }
}

export const pass = (words: readonly string[], way: Way): Passed =>
  passVectors(
    words.map((word) => embedding(word)),
    way,
  )

/** Largest difference between what each word got before the shuffle and what the same word gets after it. */
export function moved(before: Passed, after: Passed, order: readonly number[]): number {
  return Math.max(
    ...order.flatMap((from, to) => before.outputs[from]!.map((x, c) => Math.abs(x - after.outputs[to]![c]!))),
  )
}
