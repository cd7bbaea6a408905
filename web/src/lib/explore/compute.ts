// From a state to every number on screen: per head  q, k, v → scores → weights → output, then W_O and the residual.
//
//   q_i = W_Q (x_i + p_i), k_j = W_K (x_j + p_j), v_j = W_V x_j     α_ij = softmax_j(q_i·k_j · scale / T)
//   o_i = Σ_j α_ij v_j                                             y_i = Σ_h w_h/H · o_i^h  (+ x_i)
//
// A head's projections are turns of the vectors set by hand. Sinusoidal positions p enter queries and keys before the
// projection and leave values alone; rotary positions turn queries and keys after it. The residual takes x_i = v_i of
// head 1, whose W_V is the identity.
import { attend } from '../attention'
import { add, radians, scale, subtract, turn, type Point } from './plane'
import { vectorsOf, type Kind, type State } from './state'

export interface HeadResult {
  queries: Point[]
  keys: Point[]
  values: Point[]
  /** q·k times the scale, before the temperature. */
  scores: number[][]
  weights: number[][]
  outputs: Point[]
}

export interface Result {
  heads: HeadResult[]
  /** After the output projection; with one head the same as its outputs. */
  mixed: Point[]
  /** After the residual, when it is on; else the same as mixed. */
  final: Point[]
}

export const scaleOf = (state: State): number => (state.scaled ? 1 / Math.SQRT2 : 1)

/** Which keys the query at `place` may see. */
export const allowed = (state: State, place: number): boolean[] =>
  state.words.map((_, j) => !state.causal || j <= place)

/** The sinusoidal vector of a place, of two channels: size · (sin i, cos i). */
export const positionVector = (state: State, place: number): Point =>
  scale([Math.sin(place), Math.cos(place)], state.positions === 'sinusoidal' ? state.size : 0)

const placeTurn = (state: State, place: number): number =>
  state.positions === 'rotary' ? place * state.turn : 0

/** The vector that head `head` computes with, from the one set by hand. */
export function projected(state: State, head: number, kind: Kind, place: number): Point {
  const set = vectorsOf(state, place)[kind]
  const own = radians(state.heads[head]![kind])
  if (kind === 'value') return turn(set, own)
  return turn(turn(add(set, positionVector(state, place)), own), placeTurn(state, place))
}

/** The inverse of `projected`: what to set by hand so that head `head` computes with `to`. */
export function unprojected(state: State, head: number, kind: Kind, place: number, to: Point): Point {
  const own = radians(state.heads[head]![kind])
  if (kind === 'value') return turn(to, -own)
  return subtract(turn(turn(to, -placeTurn(state, place)), -own), positionVector(state, place))
}

export function computeHead(state: State, head: number): HeadResult {
  const all = (kind: Kind) => state.words.map((_, place) => projected(state, head, kind, place))
  const [queries, keys, values] = [all('query'), all('key'), all('value')]
  const rows = queries.map((query, i) =>
    attend(query, keys, values, {
      scale: scaleOf(state),
      temperature: state.temperature,
      allowed: allowed(state, i),
    }),
  )
  return {
    queries,
    keys,
    values,
    scores: rows.map((row) => row.scores),
    weights: rows.map((row) => row.weights),
    outputs: rows.map((row) => [row.output[0]!, row.output[1]!] as Point),
  }
}

export function compute(state: State): Result {
  const heads = Array.from({ length: state.headCount }, (_, head) => computeHead(state, head))
  const mixed = state.words.map((_, i) =>
    state.headCount === 1
      ? heads[0]!.outputs[i]!
      : heads.reduce<Point>(
          (sum, head, h) => add(sum, scale(head.outputs[i]!, state.heads[h]!.mix / state.headCount)),
          [0, 0],
        ),
  )
  const final = mixed.map((output, i) => (state.residual ? add(vectorsOf(state, i).value, output) : output))
  return { heads, mixed, final }
}

/** Where the output would go if the chosen query turned once around with its length kept. */
export function orbit(state: State, head: HeadResult, steps = 180): Point[] {
  const query = head.queries[state.chosen]!
  const options = {
    scale: scaleOf(state),
    temperature: state.temperature,
    allowed: allowed(state, state.chosen),
  }
  return Array.from({ length: steps }, (_, i) => {
    const { output } = attend(turn(query, (2 * Math.PI * i) / steps), head.keys, head.values, options)
    return [output[0]!, output[1]!] as Point
  })
}
