// Where to write the names of points so that they do not lie on each other: each name takes the best of eight places
// around its point, in the order of the points, and is pushed inside where it would still stick out.
import type { Point } from './plane'

export interface Label {
  x: number
  y: number
  anchor: 'start' | 'middle' | 'end'
}

interface Box {
  left: number
  right: number
  top: number
  bottom: number
}

const overlap = (a: Box, b: Box): number =>
  Math.max(0, Math.min(a.right, b.right) - Math.max(a.left, b.left)) *
  Math.max(0, Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top))

/** How far to push what reaches from `from` to `to` so that it lies between 0 and `side`; the beginning goes first. */
const inward = (from: number, to: number, side: number): number =>
  from < 0 ? -from : to > side ? Math.max(side - to, -from) : 0

/** Places for `names` at `points` (pixels, y downwards) in a square of side `side`; `gap` is the distance from a point. */
export function placeLabels(
  points: readonly Point[],
  names: readonly string[],
  side: number,
  gap = 13,
): Label[] {
  const height = 15
  const dots = points.map(([x, y]) => ({
    left: x - 7,
    right: x + 7,
    top: y - 7,
    bottom: y + 7,
  }))
  const taken: Box[] = []
  return points.map(([x, y], i) => {
    const width = names[i]!.length * 8.2 + 4
    const outward = Math.atan2(y - side / 2, x - side / 2)
    let best: { cost: number; label: Label; box: Box } | null = null
    for (let step = 0; step < 8; step++) {
      // The outward direction first, then alternately to both sides of it.
      const angle = outward + Math.ceil(step / 2) * (step % 2 ? 1 : -1) * (Math.PI / 4)
      const [cos, sin] = [Math.cos(angle), Math.sin(angle)]
      const anchor = cos > 0.4 ? 'start' : cos < -0.4 ? 'end' : 'middle'
      const [lx, ly] = [x + gap * cos, y + gap * sin * 1.25 + 5]
      const left = anchor === 'start' ? lx : anchor === 'end' ? lx - width : lx - width / 2
      const box = { left, right: left + width, top: ly - height + 3, bottom: ly + 3 }
      const outside =
        Math.max(0, -box.left) +
        Math.max(0, box.right - side) +
        Math.max(0, -box.top) +
        Math.max(0, box.bottom - side)
      const cost =
        step * 4 +
        outside * 40 +
        2 * taken.reduce((sum, other) => sum + overlap(box, other), 0) +
        dots.reduce(
          (sum, dot, j) => sum + (points[j]![0] === x && points[j]![1] === y ? 0 : overlap(box, dot)),
          0,
        )
      if (!best || cost < best.cost) best = { cost, label: { x: lx, y: ly, anchor }, box }
    }
    const { label, box } = best!
    const [dx, dy] = [inward(box.left, box.right, side), inward(box.top, box.bottom, side)]
    if (names[i] !== '')
      taken.push({ left: box.left + dx, right: box.right + dx, top: box.top + dy, bottom: box.bottom + dy })
    return { ...label, x: label.x + dx, y: label.y + dy }
  })
}
