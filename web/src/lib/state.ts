// The state of the view as a fragment: #layer=2&head=5 · #heads=0,3,5&head=3 · &token=q4 (locked) · &pair=ab ·
// &special=0 (hidden) · &min=0.1 · &kind=cross · &map=row,column,columns · &pool=mean. Without `heads`, `head` alone is shown; `heads=all` shows all.
import { PAIRS, type Pair, type Token } from './tokens'

export interface ViewState {
  kind: string | null
  layer: number | null
  /** Which of several sites of one kind and layer, 0 = first. */
  nth: number
  /** Heads shown; null = all. */
  heads: number[] | null
  /** The head of the matrix; null = the page chooses. */
  head: number | null
  token: Token | null
  pair: Pair
  special: boolean
  /** Weights below this draw no line; null = the page chooses. */
  min: number | null
  /** What the map of a long text shows: its first row and column, and how many columns; null = everything. */
  map: { row: number; column: number; across: number } | null
  /** What a pixel of the map is of the weights that it stands for. */
  pool: 'max' | 'mean'
}

export const START: ViewState = {
  kind: null,
  layer: null,
  nth: 0,
  heads: null,
  head: null,
  token: null,
  pair: 'all',
  special: true,
  min: null,
  map: null,
  pool: 'max',
}

/** Read a fragment. What can not be understood counts as not said. */
export function parseState(params: URLSearchParams): ViewState {
  const head = count(params.get('head'))
  const heads = params.get('heads')
  const list = (heads ?? '').split(',').filter(Boolean).map(count)
  const token = /^([qk])(\d{1,7})$/.exec(params.get('token') ?? '')
  const pair = params.get('pair') as Pair
  const min = params.has('min') ? Number(params.get('min')) : NaN
  return {
    kind: params.get('kind'),
    layer: count(params.get('layer')),
    nth: count(params.get('nth')) ?? 0,
    heads:
      heads === null
        ? head === null
          ? null
          : [head]
        : heads === 'all'
          ? null
          : [...new Set(list.filter((h) => h !== null))].sort((a, b) => a - b),
    head,
    token: token ? { side: token[1] === 'q' ? 'query' : 'key', index: Number(token[2]) } : null,
    pair: PAIRS.includes(pair) ? pair : 'all',
    special: params.get('special') !== '0',
    min: min >= 0 && min <= 1 ? min : null,
    map: mapOf(params.get('map')),
    pool: params.get('pool') === 'mean' ? 'mean' : 'max',
  }
}

/** The keys to write into the fragment; null removes a key that is at its default. */
export function stateFragment(state: ViewState): Record<string, string | null> {
  const { heads, head, token } = state
  const alone = heads?.length === 1 && heads[0] === head
  return {
    kind: state.kind,
    layer: state.layer === null ? null : String(state.layer),
    nth: state.nth ? String(state.nth) : null,
    heads: alone ? null : heads === null ? (head === null ? null : 'all') : heads.join(','),
    head: head === null ? null : String(head),
    token: token ? (token.side === 'query' ? 'q' : 'k') + token.index : null,
    pair: state.pair === 'all' ? null : state.pair,
    special: state.special ? null : '0',
    min: state.min === null ? null : String(state.min),
    map: state.map && `${state.map.row},${state.map.column},${state.map.across}`,
    pool: state.pool === 'max' ? null : state.pool,
  }
}

function mapOf(text: string | null): ViewState['map'] {
  const [row, column, across] = (text ?? '').split(',').map(count)
  return row != null && column != null && across ? { row, column, across } : null
}

function count(text: string | null): number | null {
  return text !== null && /^\d{1,7}$/.test(text) ? Number(text) : null
}
