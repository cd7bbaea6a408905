// What a picture says in words and numbers. All of it is computed from the weights in sight; nothing is rescaled.
import type { SiteWeights } from './payload'
import { sampled, type Token } from './tokens'

/** Mean over heads and queries of the weight that goes to `keys`: 0.61 = 61 % of what these heads read. */
export function shareOf(weights: SiteWeights, heads: number[], queries: number[], keys: number[]): number {
  let sum = 0
  for (const head of heads)
    for (const query of queries) for (const key of keys) sum += weights.at(head, query, key)
  return heads.length && queries.length ? sum / (heads.length * queries.length) : 0
}

/** For each of `others`, the weight between it and `token`: the mean over `heads`. */
export function weightsOf(
  weights: SiteWeights,
  heads: number[],
  token: Token,
  others: number[],
): Float32Array {
  return Float32Array.from(others, (other) => {
    let sum = 0
    for (const head of heads) sum += between(weights, head, token, other)
    return heads.length ? sum / heads.length : 0
  })
}

export interface Reading {
  other: number
  mean: number
  /** The head that gives the most, and how much. */
  head: number
  most: number
}

/** The `count` tokens that share the most weight with `token`, the strongest first. */
export function readings(
  weights: SiteWeights,
  heads: number[],
  token: Token,
  others: number[],
  count: number,
): Reading[] {
  const means = weightsOf(weights, heads, token, others)
  return others
    .map((other, at) => ({ other, mean: means[at]! }))
    .sort((a, b) => b.mean - a.mean || a.other - b.other)
    .slice(0, count)
    .map(({ other, mean }) => {
      let best = heads[0] ?? 0
      for (const head of heads)
        if (between(weights, head, token, other) > between(weights, best, token, other)) best = head
      return { other, mean, head: best, most: between(weights, best, token, other) }
    })
}

/** The weight between `token` and `other` in one head, whichever of them asks. */
export function between(weights: SiteWeights, head: number, token: Token, other: number): number {
  return token.side === 'query' ? weights.at(head, token.index, other) : weights.at(head, other, token.index)
}

const MANY_ROWS = 64

/**
 * The weight that gets the last colour of the ramp: the largest in sight. In a long text a few weights stand far above
 * all others and everything else would be blank: there it is the median of the rows' largest weights (`clipped`).
 */
export function rampEnd(
  weights: SiteWeights,
  head: number,
  queries: number[],
  keys: number[],
): { max: number; clipped: boolean } {
  const rows = queries.map((query) =>
    keys.reduce((most, key) => Math.max(most, weights.at(head, query, key)), 0),
  )
  rows.sort((a, b) => a - b)
  const most = rows.at(-1) ?? 0
  const max = rows.length > MANY_ROWS ? rows[rows.length >> 1]! : most
  return max > 0 && max < 0.98 * most ? { max, clipped: true } : { max: most, clipped: false }
}

/** The head that gives most weight to other ordinary words, judged by up to 64 rows: something to look at first. */
export function talkative(weights: SiteWeights, queries: number[], keys: number[]): number {
  const sample = sampled(queries)
  let best = weights.numbers[0] ?? 0
  let most = -1
  for (const head of weights.numbers) {
    let sum = 0
    for (const query of sample) for (const key of keys) if (key !== query) sum += weights.at(head, query, key)
    if (sum > most) [best, most] = [head, sum]
  }
  return best
}
