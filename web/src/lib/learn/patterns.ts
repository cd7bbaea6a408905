// Masks as rules allowed(i, j): may query i see key j? And what follows from them: cells computed, and which words can
// reach a word through several layers.
import { uniforms } from '../explore/random'

export const PATTERNS = [
  'full',
  'causal',
  'padding',
  'window',
  'global',
  'block',
  'bigbird',
  'strided',
] as const
export type Pattern = (typeof PATTERNS)[number]

/** The one number that each pattern has: a width, a count of padded places, a block size, a stride. */
export interface Shape {
  length: number
  width: number
}

export type Cells = boolean[][]

/** window: |i − j| ≤ width. */
const near = (i: number, j: number, width: number) => Math.abs(i - j) <= width

const RULES: Record<Exclude<Pattern, 'bigbird'>, (i: number, j: number, shape: Shape) => boolean> = {
  full: () => true,
  causal: (i, j) => j <= i,
  padding: (_i, j, { length, width }) => j < length - width,
  window: (i, j, { width }) => near(i, j, width),
  // Beltagy et al. 2020: the first word sees all and is seen by all.
  global: (i, j, { width }) => near(i, j, width) || i === 0 || j === 0,
  block: (i, j, { width }) => Math.floor(i / width) === Math.floor(j / width),
  // Child et al. 2019: the last `width` words, then every width-th before them.
  strided: (i, j, { width }) => j <= i && (i - j <= width || (i - j) % width === 0),
}

export function cells(pattern: Pattern, shape: Shape): Cells {
  const { length, width } = shape
  const places = Array.from({ length }, (_, i) => i)
  if (pattern === 'bigbird') return withRandom(cells('global', shape), width)
  return places.map((i) => places.map((j) => RULES[pattern](i, j, shape)))
}

/** bigbird (Zaheer et al. 2020): window, one global token, and in each row `extra` random keys that it does not see yet. */
function withRandom(allowed: Cells, extra: number): Cells {
  const draw = uniforms(20)
  return allowed.map((row) => {
    const ranks = row.map((seen) => (seen ? Infinity : draw()))
    const last = [...ranks].sort((a, b) => a - b)[Math.min(extra, row.length) - 1]!
    return row.map((seen, j) => seen || (last < Infinity ? ranks[j]! <= last : true))
  })
}

export function count(allowed: Cells): number {
  return allowed.reduce((sum, row) => sum + row.filter(Boolean).length, 0)
}

/** The layer (1, 2, …) at which word i first receives something of each word j; 0 for itself, null when it never does
 *  within `layers`. A layer passes on what its keys hold, so reach grows like a breadth-first walk. */
export function reach(allowed: Cells, i: number, layers: number): (number | null)[] {
  const first: (number | null)[] = allowed.map((_, j) => (j === i ? 0 : null))
  let edge = [i]
  for (let layer = 1; layer <= layers && edge.length; layer++) {
    const next: number[] = []
    for (const from of edge) {
      allowed[from]!.forEach((may, j) => {
        if (may && first[j] === null) {
          first[j] = layer
          next.push(j)
        }
      })
    }
    edge = next
  }
  return first
}
