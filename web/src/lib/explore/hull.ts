// The convex hull of a few points of the plane: every weighted mean with weights ≥ 0 and sum 1 lies in it.
// Andrew's monotone chain: A. M. Andrew, "Another efficient algorithm for convex hulls in two dimensions", 1979.
import type { Point } from './plane'

/** Twice the signed area of the triangle a, b, c: positive when it turns left. */
const area = (a: Point, b: Point, c: Point): number =>
  (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])

/** The corners of the convex hull, counter-clockwise from the leftmost; points on an edge are left out. */
export function convexHull(points: readonly Point[]): Point[] {
  const sorted = [...points].sort((a, b) => a[0] - b[0] || a[1] - b[1])
  const distinct = sorted.filter(
    (p, i) => i === 0 || p[0] !== sorted[i - 1]![0] || p[1] !== sorted[i - 1]![1],
  )
  if (distinct.length < 3) return distinct
  const lower = chain(distinct)
  const upper = chain([...distinct].reverse())
  return [...lower.slice(0, -1), ...upper.slice(0, -1)]
}

function chain(points: readonly Point[]): Point[] {
  const corners: Point[] = []
  for (const point of points) {
    while (corners.length > 1 && area(corners.at(-2)!, corners.at(-1)!, point) <= 0) corners.pop()
    corners.push(point)
  }
  return corners
}

/** How far `point` lies outside the hull (0 inside). */
export function distanceOutside(point: Point, hull: readonly Point[]): number {
  if (hull.length === 0) return Infinity
  const inside = hull.length > 2 && hull.every((a, i) => area(a, hull[(i + 1) % hull.length]!, point) >= 0)
  if (inside) return 0
  return Math.min(...hull.map((a, i) => toSegment(point, a, hull[(i + 1) % hull.length]!)))
}

function toSegment(p: Point, a: Point, b: Point): number {
  const [dx, dy] = [b[0] - a[0], b[1] - a[1]]
  const square = dx * dx + dy * dy
  const t = square === 0 ? 0 : Math.min(1, Math.max(0, ((p[0] - a[0]) * dx + (p[1] - a[1]) * dy) / square))
  return Math.hypot(p[0] - a[0] - t * dx, p[1] - a[1] - t * dy)
}
