// Attention of one query in plain numbers: softmax((q·k_j · scale) / T) and the weighted sum of the values.
// The explorer and the lessons share this file; tests/golden holds the numbers that Python gets for the same input.

export type Vector = readonly number[]

export interface Attended {
  /** q·k_j · scale, before the temperature. */
  scores: number[]
  /** After the softmax: each ≥ 0, sum 1; all 0 when no key is allowed. */
  weights: number[]
  /** Σ_j weights_j · value_j: the barycentre of the values. */
  output: number[]
}

export interface Options {
  /** Factor on q·k; default 1/√d_k. */
  scale?: number
  /** Divides the scores: 0 copies the best key's value, Infinity takes the mean. */
  temperature?: number
  /** allowed[j] = false: this query may not see key j. */
  allowed?: readonly boolean[]
}

export function dot(a: Vector, b: Vector): number {
  let sum = 0
  for (let i = 0; i < a.length; i++) sum += a[i]! * b[i]!
  return sum
}

export const norm = (v: Vector): number => Math.sqrt(dot(v, v))

/** Softmax of scores/T over the allowed places. T = 0 shares 1 among the largest, T = Infinity among all that are allowed. */
export function softmax(scores: Vector, temperature = 1, allowed?: readonly boolean[]): number[] {
  const may = (j: number) => allowed?.[j] !== false
  const largest = scores.reduce((best, score, j) => (may(j) ? Math.max(best, score) : best), -Infinity)
  if (largest === -Infinity) return scores.map(() => 0)
  const parts = scores.map((score, j) => {
    if (!may(j)) return 0
    if (temperature === 0) return score === largest ? 1 : 0
    return temperature === Infinity ? 1 : Math.exp((score - largest) / temperature)
  })
  const total = parts.reduce((sum, part) => sum + part, 0)
  return parts.map((part) => part / total)
}

/** Σ_j weights_j · vectors_j. */
export function mix(weights: Vector, vectors: readonly Vector[]): number[] {
  const out = new Array<number>(vectors[0]?.length ?? 0).fill(0)
  weights.forEach((weight, j) => vectors[j]!.forEach((x, c) => (out[c]! += weight * x)))
  return out
}

export function attend(
  query: Vector,
  keys: readonly Vector[],
  values: readonly Vector[],
  { scale = 1 / Math.sqrt(query.length), temperature = 1, allowed }: Options = {},
): Attended {
  const scores = keys.map((key) => scale * dot(query, key))
  const weights = softmax(scores, temperature, allowed)
  return { scores, weights, output: mix(weights, values) }
}

/** −Σ w ln w in nats: 0 when one key takes all, ln n when all share alike. */
export function entropy(weights: Vector): number {
  return -weights.reduce((sum, weight) => (weight > 0 ? sum + weight * Math.log(weight) : sum), 0)
}
