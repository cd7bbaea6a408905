// Which tokens are shown: a sentence of a pair, with or without the special ones. Positions in these lists are the rows of
// the view and of the matrix; their values are positions in the sequence.
import type { Sequence } from './payload'

export type Pair = 'all' | 'aa' | 'ab' | 'ba' | 'bb'
export const PAIRS: Pair[] = ['all', 'aa', 'ab', 'ba', 'bb']
export type Side = 'query' | 'key'
export interface Token {
  side: Side
  index: number
}

/** Whether the sequence holds two sentences. */
export function isPair(sequence: Sequence): boolean {
  return sequence.segments.includes(1) && sequence.segments.includes(0)
}

/** The sentence (0 = A, 1 = B) that `pair` asks for on one side; null = both. */
export function segmentOf(pair: Pair, side: Side): number | null {
  if (pair === 'all') return null
  return pair[side === 'query' ? 0 : 1] === 'a' ? 0 : 1
}

/** Positions of the tokens to show. */
export function shownTokens(sequence: Sequence, segment: number | null, specials: boolean): number[] {
  return sequence.tokens
    .map((_, index) => index)
    .filter(
      (i) => (specials || !sequence.special[i]) && (segment === null || sequence.segments[i] === segment),
    )
}

const SAMPLE = 64

/** At most 64 of these rows, evenly spread: enough to judge a whole attention by. */
export function sampled(rows: number[]): number[] {
  const every = Math.ceil(rows.length / SAMPLE)
  return rows.filter((_, at) => at % every === 0)
}

/** The rows [from, to) that a window of `height` pixels shows, with `spare` more on both sides. */
export function rowsInSight(
  scrollTop: number,
  height: number,
  rowHeight: number,
  count: number,
  spare = 0,
): [number, number] {
  const from = Math.max(0, Math.floor(scrollTop / rowHeight) - spare)
  const to = Math.min(count, Math.ceil((scrollTop + height) / rowHeight) + spare)
  return [Math.min(from, to), to]
}
