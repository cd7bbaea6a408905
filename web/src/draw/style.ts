// What canvases and exported pictures need from the style sheet: colours that are in force, and widths of words.

import { isDark } from '../lib/theme.svelte'

const known = new Map<string, string>()

/** The colour of a custom property as "#rrggbb", in the theme in force; who reads it is drawn again when that changes. */
export function themeColour(property: string): string {
  const key = `${property} ${isDark()}`
  const colour = known.get(key) ?? measured(property)
  known.set(key, colour)
  return colour
}

function measured(property: string): string {
  const probe = document.createElement('span')
  probe.style.color = `var(${property})`
  document.body.append(probe)
  const [r, g, b] = getComputedStyle(probe)
    .color.match(/[\d.]+/g)!
    .map(Number) as [number, number, number]
  probe.remove()
  return '#' + [r, g, b].map((channel) => Math.round(channel).toString(16).padStart(2, '0')).join('')
}

export const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'DejaVu Sans', sans-serif"

/** Pixels of 1 rem: 16, and more on a large screen. */
export function rem(): number {
  return parseFloat(getComputedStyle(document.documentElement).fontSize)
}

let context: CanvasRenderingContext2D | null = null

/** The width of `text` in pixels at `size` pixels. */
export function textWidth(text: string, size: number): number {
  context ??= document.createElement('canvas').getContext('2d')!
  context.font = `${size}px ${FONT}`
  return context.measureText(text).width
}

/** The width of the widest of `texts`; of very many, a sample that holds the longest. */
export function widest(texts: string[], size: number): number {
  const longest = texts.length > 300 ? [...texts].sort((a, b) => b.length - a.length).slice(0, 300) : texts
  return longest.reduce((most, text) => Math.max(most, textWidth(text, size)), 0)
}
