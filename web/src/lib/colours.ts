// Colours that carry meaning: one for each head, and one ramp for weights.
//
// Heads: hues evenly spaced in OKLCH, lightness alternating between neighbours, and a dash pattern of their own, so that
// two heads differ in more than hue. Weights: a straight line in OKLab between two colours, which the eye reads as even.
// OKLab: Björn Ottosson, "A perceptual color space for image processing" (2020).

type Triple = [number, number, number]

export interface HeadStyle {
  colour: string
  /** For setLineDash and stroke-dasharray; empty = solid. */
  dash: number[]
}

const DASHES: number[][] = [[], [10, 4], [4, 3]]
const LIGHTNESS = { light: [0.5, 0.64], dark: [0.84, 0.7] } as const
const CHROMA = 0.17
const FIRST_HUE = 255

/** Colour and dash of head `index` among `count`. */
export function headStyle(index: number, count: number, dark: boolean): HeadStyle {
  const hue = (FIRST_HUE + (index * 360) / Math.max(1, count)) % 360
  const lightness = LIGHTNESS[dark ? 'dark' : 'light'][index % 2]!
  return { colour: oklch(lightness, CHROMA, hue), dash: DASHES[index % DASHES.length]! }
}

/** The sRGB colour "#rrggbb" of an OKLCH colour; chroma is lowered until the screen can show it. */
export function oklch(lightness: number, chroma: number, hueDegrees: number): string {
  const hue = (hueDegrees * Math.PI) / 180
  for (let c = chroma; ; c -= 0.005) {
    const rgb = labToLinear([lightness, c * Math.cos(hue), c * Math.sin(hue)])
    if (c <= 0 || rgb.every((channel) => channel > -1e-4 && channel < 1.0001)) return hex(rgb)
  }
}

/** `count` colours from `low` to `high` ("#rrggbb"), evenly spaced in OKLab, as bytes r, g, b, r, g, b, … */
export function ramp(low: string, high: string, count = 256): Uint8Array {
  const from = toLab(low)
  const to = toLab(high)
  const bytes = new Uint8Array(3 * count)
  for (let i = 0; i < count; i++) {
    const t = count === 1 ? 0 : i / (count - 1)
    const rgb = labToLinear(from.map((value, axis) => value + t * (to[axis]! - value)) as Triple)
    rgb.forEach((channel, axis) => (bytes[3 * i + axis] = toByte(channel)))
  }
  return bytes
}

/** "#rrggbb" in OKLab: lightness, a, b. */
export function toLab(colour: string): Triple {
  const [r, g, b] = [1, 3, 5].map((at) => fromByte(parseInt(colour.slice(at, at + 2), 16))) as Triple
  const l = Math.cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b)
  const m = Math.cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b)
  const s = Math.cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b)
  return [
    0.2104542553 * l + 0.793617785 * m - 0.0040720468 * s,
    1.9779984951 * l - 2.428592205 * m + 0.4505937099 * s,
    0.0259040371 * l + 0.7827717662 * m - 0.808675766 * s,
  ]
}

/** Contrast of two "#rrggbb" colours as WCAG 2 defines it, from 1 to 21. */
export function contrast(one: string, other: string): number {
  const luminance = (colour: string) => {
    const [r, g, b] = [1, 3, 5].map((at) => fromByte(parseInt(colour.slice(at, at + 2), 16))) as Triple
    return 0.2126 * r + 0.7152 * g + 0.0722 * b
  }
  const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b) as [number, number]
  return (high + 0.05) / (low + 0.05)
}

function labToLinear([lightness, a, b]: Triple): Triple {
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3
  return [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ]
}

function fromByte(byte: number): number {
  const value = byte / 255
  return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4
}

function toByte(linear: number): number {
  const value = linear <= 0.0031308 ? 12.92 * linear : 1.055 * linear ** (1 / 2.4) - 0.055
  return Math.round(255 * Math.min(1, Math.max(0, value)))
}

function hex(linear: Triple): string {
  return '#' + linear.map((channel) => toByte(channel).toString(16).padStart(2, '0')).join('')
}
