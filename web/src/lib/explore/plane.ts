// Vectors of the plane: what the explorer draws and moves.

export type Point = readonly [number, number]

export const add = (a: Point, b: Point): Point => [a[0] + b[0], a[1] + b[1]]
export const subtract = (a: Point, b: Point): Point => [a[0] - b[0], a[1] - b[1]]
export const scale = (a: Point, factor: number): Point => [a[0] * factor, a[1] * factor]
export const inner = (a: Point, b: Point): number => a[0] * b[0] + a[1] * b[1]
export const length = (a: Point): number => Math.hypot(a[0], a[1])
export const degrees = (radians: number): number => (radians * 180) / Math.PI
export const radians = (angle: number): number => (angle * Math.PI) / 180

/** `a` turned by `angle` (radians, counter-clockwise). */
export function turn(a: Point, angle: number): Point {
  if (angle === 0) return a
  const cos = Math.cos(angle)
  const sin = Math.sin(angle)
  return [cos * a[0] - sin * a[1], sin * a[0] + cos * a[1]]
}

export const polar = (angle: number, radius: number): Point => [
  radius * Math.cos(angle),
  radius * Math.sin(angle),
]

/** The direction of `a` in degrees, from 0 to 359.99…; 0 for the zero vector. */
export function direction(a: Point): number {
  const angle = degrees(Math.atan2(a[1], a[0]))
  return angle < 0 ? angle + 360 : angle
}

/** `a`, shortened to `limit` if it is longer. */
export function within(a: Point, limit: number): Point {
  const long = length(a)
  return long > limit ? scale(a, limit / long) : a
}

/** Both coordinates to a thousandth, so that a link holds exactly what is on screen. */
export const rounded = (a: Point): Point => [thousandth(a[0]), thousandth(a[1])]
const thousandth = (x: number): number => Math.round(x * 1000) / 1000 + 0

/** Where the line {x : normal·x = normal·through} leaves the square |x|, |y| ≤ `half`; null if it misses the square. */
export function lineInSquare(through: Point, normal: Point, half: number): [Point, Point] | null {
  const long = length(normal)
  if (long === 0) return null
  const along: Point = [-normal[1] / long, normal[0] / long]
  let from = -Infinity
  let to = Infinity
  for (const axis of [0, 1] as const) {
    if (along[axis] === 0) {
      if (Math.abs(through[axis]) > half) return null
      continue
    }
    const one = (-half - through[axis]) / along[axis]
    const other = (half - through[axis]) / along[axis]
    from = Math.max(from, Math.min(one, other))
    to = Math.min(to, Math.max(one, other))
  }
  return from < to ? [add(through, scale(along, from)), add(through, scale(along, to))] : null
}
