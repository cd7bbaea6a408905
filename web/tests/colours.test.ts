import { describe, expect, test } from 'vitest'
import { contrast, headStyle, oklch, ramp, toLab } from '../src/lib/colours'

const distance = (one: string, other: string) =>
  Math.hypot(...toLab(one).map((value, axis) => value - toLab(other)[axis]!))

describe.each([
  ['light', false, '#ffffff'],
  ['dark', true, '#191d26'],
] as const)('heads on the %s theme', (_name, dark, panel) => {
  test('12 heads have 12 clearly different colours', () => {
    const colours = Array.from({ length: 12 }, (_, i) => headStyle(i, 12, dark).colour)
    for (const a of colours)
      for (const b of colours) if (a !== b) expect(distance(a, b)).toBeGreaterThan(0.07)
    expect(new Set(colours).size).toBe(12)
  })
  test('any number of heads is told apart by colour and dash', () => {
    for (const count of [1, 2, 9, 16, 32, 64, 128]) {
      const looks = Array.from({ length: count }, (_, i) => JSON.stringify(headStyle(i, count, dark)))
      expect(new Set(looks).size, `${count} heads`).toBe(count)
    }
  })
  test('neighbours differ in lightness and in dash, for who sees no hues', () => {
    for (let i = 0; i < 11; i++) {
      const [one, other] = [headStyle(i, 12, dark), headStyle(i + 1, 12, dark)]
      expect(Math.abs(toLab(one.colour)[0] - toLab(other.colour)[0])).toBeGreaterThan(0.1)
      expect(one.dash).not.toEqual(other.dash)
    }
  })
  test('every colour stands out from the background by 3 to 1', () => {
    for (let i = 0; i < 12; i++) expect(contrast(headStyle(i, 12, dark).colour, panel)).toBeGreaterThan(3)
  })
})

test('an OKLCH colour without chroma is grey, and colours outside the screen are brought inside', () => {
  expect(oklch(1, 0, 0)).toBe('#ffffff')
  expect(oklch(0, 0, 0)).toBe('#000000')
  expect(oklch(0.6, 0.4, 150)).toMatch(/^#[0-9a-f]{6}$/)
  expect(toLab(oklch(0.6, 0.4, 150))[0]).toBeCloseTo(0.6, 2)
})

test('the ramp starts and ends at its colours and is even in lightness', () => {
  const bytes = ramp('#ffffff', '#10243f', 256)
  const at = (i: number) =>
    '#' + [...bytes.slice(3 * i, 3 * i + 3)].map((b) => b.toString(16).padStart(2, '0')).join('')
  expect(at(0)).toBe('#ffffff')
  expect(at(255)).toBe('#10243f')
  const lightness = [0, 64, 128, 192, 255].map((i) => toLab(at(i))[0])
  const steps = lightness.slice(1).map((value, i) => lightness[i]! - value)
  for (const step of steps) expect(step).toBeCloseTo(steps[0]!, 1.9)
})
