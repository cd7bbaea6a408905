// What is written along the sides of the map: tokens where there is room for words, positions where there is not.
import { textWidth } from '../../draw/style'
import { axisTicks, type Extent, type MapView } from '../../lib/map'
import { LEAN, type Label } from '../../lib/matrix'
import { fitted } from '../../lib/text'
import type { Session } from './session.svelte'

/** Pixels of a cell from which its token is named. */
const WORDS = 14

export interface Axes {
  /** Whether these are tokens; then those of the columns lean. */
  named: boolean
  rows: Label[]
  columns: Label[]
}

export function axesOf(
  session: Session,
  view: MapView,
  extent: Extent,
  { left, top, size }: { left: number; top: number; size: number },
): Axes {
  const named = view.scale >= WORDS
  const short = (token: string, room: number) => fitted(token, room, (text) => textWidth(text, size))
  const word = (tokens: string[], at: number, room: number) => (named ? short(tokens[at]!, room) : String(at))
  const ticks = (start: number, pixels: number, count: number, room: number) =>
    axisTicks(start, pixels, view.scale, count, named ? WORDS : room)
  return {
    named,
    rows: ticks(view.row, extent.height, extent.rows, 44).map((at) => ({
      at,
      x: left - 6,
      y: top + (at + 0.5 - view.row) * view.scale,
      text: word(session.queryTokens.tokens, at, left - 12),
    })),
    columns: ticks(view.column, extent.width, extent.columns, 64).map((at) => ({
      at,
      x: left + (at + 0.5 - view.column) * view.scale,
      y: top - 6,
      text: word(session.keyTokens.tokens, at, (top - 14) / Math.sin(-LEAN)),
    })),
  }
}
