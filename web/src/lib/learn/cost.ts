// What one head costs: multiplications of the scores and of the weighted sum, and numbers kept at once.

export type Way = 'full' | 'tiled' | 'window' | 'linear'

export interface Price {
  /** Multiplications for n words of d channels. */
  work: number
  /** Numbers of intermediate storage: weights, or a running state. */
  memory: number
}

export interface Size {
  length: number
  channels: number
  /** Keys on either side that a window sees. */
  window: number
}

const TILE = 64

export function price(way: Way, { length: n, channels: d, window: w }: Size): Price {
  const seen = Math.min(n, 2 * w + 1)
  switch (way) {
    case 'full':
      return { work: 2 * n * n * d, memory: n * n }
    case 'tiled': // the same products, one tile of scores at a time (Dao et al. 2022)
      return { work: 2 * n * n * d, memory: TILE * TILE + 2 * n }
    case 'window':
      return { work: 2 * n * seen * d, memory: n * seen }
    case 'linear': // Σ φ(k)vᵀ once, then φ(q) times it (Katharopoulos et al. 2020)
      return { work: 2 * n * d * d, memory: d * d + d }
  }
}

/** Exponent b of y ≈ a·x^b through the points: the slope of the line in a doubly logarithmic picture. */
export function exponent(points: readonly (readonly [number, number])[]): number {
  const xs = points.map(([x]) => Math.log(x))
  const ys = points.map(([, y]) => Math.log(y))
  const mx = xs.reduce((s, x) => s + x, 0) / xs.length
  const my = ys.reduce((s, y) => s + y, 0) / ys.length
  const top = xs.reduce((s, x, i) => s + (x - mx) * (ys[i]! - my), 0)
  return top / xs.reduce((s, x) => s + (x - mx) ** 2, 0)
}
