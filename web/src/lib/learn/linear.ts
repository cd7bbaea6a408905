// Linear attention with φ(x) = elu(x) + 1 (Katharopoulos et al. 2020), written out as weights so that it can be laid beside
// the softmax: w_j = φ(q)·φ(k_j) / Σ_m φ(q)·φ(k_m).
import { dot, type Vector } from '../attention'

export const feature = (v: Vector): number[] => v.map((x) => (x > 0 ? x + 1 : Math.exp(x)))

export function linearWeights(query: Vector, keys: readonly Vector[]): number[] {
  const phi = feature(query)
  const scores = keys.map((key) => dot(phi, feature(key)))
  const total = scores.reduce((sum, score) => sum + score, 0)
  return scores.map((score) => score / total)
}

/** Half the sum of differences: 0 when two rows of weights are the same, 1 when they share nothing. */
export function distance(a: Vector, b: Vector): number {
  return a.reduce((sum, x, j) => sum + Math.abs(x - b[j]!), 0) / 2
}
