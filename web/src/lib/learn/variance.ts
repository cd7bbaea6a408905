// Why √d_k: products q·k of vectors with independent entries of variance 1 have variance d_k. The softmax of scores that
// large is nearly one-hot, and its derivative diag(p) − ppᵀ nearly zero. (Vaswani et al. 2017, section 3.2.1.)
import { softmax } from '../attention'
import { normal } from './random'

export const KEYS = 12

/** scores[s][j] = q_s·k_j for `samples` queries with KEYS keys each, of every length in `lengths` (ascending). */
export function products(lengths: readonly number[], samples: number, seed: number): number[][][] {
  const draw = normal(seed)
  const longest = lengths.at(-1)!
  const found = lengths.map(() => Array.from({ length: samples }, () => new Array<number>(KEYS).fill(0)))
  for (let s = 0; s < samples; s++) {
    const sums = new Array<number>(KEYS).fill(0)
    let at = 0
    for (let c = 1; c <= longest; c++) {
      const q = draw()
      for (let j = 0; j < KEYS; j++) sums[j]! += q * draw()
      if (c === lengths[at]) found[at++]![s] = [...sums]
    }
  }
  return found
}

export function variance(numbers: readonly number[]): number {
  const mean = numbers.reduce((sum, x) => sum + x, 0) / numbers.length
  return numbers.reduce((sum, x) => sum + (x - mean) ** 2, 0) / (numbers.length - 1)
}

/** Size (Frobenius norm) of the derivative of the softmax at the weights p: ‖diag(p) − ppᵀ‖. */
export function slope(p: readonly number[]): number {
  let sum = 0
  for (let i = 0; i < p.length; i++) {
    for (let j = 0; j < p.length; j++) sum += (p[i]! * ((i === j ? 1 : 0) - p[j]!)) ** 2
  }
  return Math.sqrt(sum)
}

export interface AtLength {
  length: number
  variance: number
  /** Mean largest weight and mean slope of the softmax, with the scores divided by √d_k and as they are. */
  largest: { scaled: number; raw: number }
  slope: { scaled: number; raw: number }
  /** The weights of the first query, to draw. */
  weights: { scaled: number[]; raw: number[] }
}

const mean = (numbers: readonly number[]) => numbers.reduce((sum, x) => sum + x, 0) / numbers.length

/** The whole experiment: one entry a length. */
export function experiment(lengths: readonly number[], samples: number, seed: number): AtLength[] {
  return products(lengths, samples, seed).map((scores, at) => {
    const length = lengths[at]!
    const raw = scores.map((row) => softmax(row))
    const scaled = scores.map((row) => softmax(row, Math.sqrt(length)))
    return {
      length,
      variance: variance(scores.flat()),
      largest: {
        scaled: mean(scaled.map((p) => Math.max(...p))),
        raw: mean(raw.map((p) => Math.max(...p))),
      },
      slope: { scaled: mean(scaled.map(slope)), raw: mean(raw.map(slope)) },
      weights: { scaled: scaled[0]!, raw: raw[0]! },
    }
  })
}
