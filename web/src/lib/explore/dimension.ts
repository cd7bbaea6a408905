// The experiment on √d_k: one random query and n random keys of d_k channels, each channel of mean 0 and variance 1.
// Then Var(q·k) = d_k (Vaswani et al. 2017, footnote 4): without the division the softmax saturates, and with it the
// gradient ∂α/∂score = diag(α) − α αᵀ goes to 0.
import { entropy, softmax } from '../attention'
import { normals } from './random'
import { DIMENSIONS } from './state'

const LARGEST = DIMENSIONS.at(-1)!
const PAIRS = 300

export interface Row {
  weights: number[]
  /** In nats. */
  entropy: number
  /** Σ α(1 − α): the trace of the softmax's Jacobian, 0 when saturated. */
  gradient: number
}

export interface Experiment {
  /** q·k_j, undivided. */
  products: number[]
  unscaled: Row
  scaled: Row
}

function row(products: readonly number[], scale: number): Row {
  const weights = softmax(products.map((x) => x * scale))
  return {
    weights,
    entropy: entropy(weights),
    gradient: weights.reduce((sum, w) => sum + w * (1 - w), 0),
  }
}

/** The row of one query over `count` keys. The vectors are the first d_k channels of longer ones, so that moving d_k
 *  keeps the draw. */
export function experiment(dimension: number, seed: number, count: number): Experiment {
  const drawn = normals(seed, (count + 1) * LARGEST)
  const products = Array.from({ length: count }, (_, j) => {
    let sum = 0
    for (let c = 0; c < dimension; c++) sum += drawn[c]! * drawn[(j + 1) * LARGEST + c]!
    return sum
  })
  return { products, unscaled: row(products, 1), scaled: row(products, 1 / Math.sqrt(dimension)) }
}

/** The variance of q·k at each dimension, measured over random pairs. */
export function measuredVariances(seed: number): number[] {
  const drawn = normals(seed, PAIRS * 2 * LARGEST)
  const squares = DIMENSIONS.map(() => 0)
  for (let pair = 0; pair < PAIRS; pair++) {
    const at = pair * 2 * LARGEST
    let product = 0
    let reached = 0
    DIMENSIONS.forEach((dimension, d) => {
      for (; reached < dimension; reached++) product += drawn[at + reached]! * drawn[at + LARGEST + reached]!
      squares[d]! += product * product
    })
  }
  return squares.map((sum) => sum / PAIRS)
}

export const pairsMeasured = PAIRS
