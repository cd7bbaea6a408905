// Exactly what is on screen as one SVG: the tokens and lines in sight, the matrix, the heads' legend, and one line that
// says where the numbers come from. Every text is escaped; nothing in the file refers to anything outside it.
import { curveInSight, isDashed, opacity, thickness, type Geometry, type Link } from '../lib/lines'
import { LEAN, type MatrixLayout, type Label } from '../lib/matrix'
import { ramp, type HeadStyle } from '../lib/colours'
import { escapeXml } from '../lib/text'
import { FONT } from './style'

export interface LinesPicture {
  geometry: Geometry
  links: Link[]
  lit: Link | null
  width: number
  columnWidth: number
}

export interface MatrixPicture {
  layout: MatrixLayout
  labels: { rows: Label[]; columns: Label[] }
  image: HTMLCanvasElement | null
  /** The weight at the end of the ramp, in words: 0.98, or ≥ 0.31. */
  upTo: string
  low: string
  high: string
}

/** A token in sight: its text, the middle of its row, its weight if one is shown, and whether it is in focus. */
export interface PlacedToken {
  text: string
  y: number
  number: string
  weight: number
  marked: boolean
  special: boolean
}

export interface PictureColours {
  paper: string
  ink: string
  muted: string
  line: string
  accent: string
}

export interface Picture {
  title: string
  headings: { queries: string; keys: string; matrix: string }
  lines: LinesPicture
  matrix: MatrixPicture
  queries: PlacedToken[]
  keys: PlacedToken[]
  /** Outlined row and column of the matrix; −1 = none. */
  markedRow: number
  markedColumn: number
  heads: { head: number; style: HeadStyle }[]
  styles: HeadStyle[]
  scale: { from: string; to: string }
  caption: string[]
  colours: PictureColours
  /** The width of a text at a size, in pixels. */
  measure: (text: string, size: number) => number
}

const MARGIN = 24
const GAP = 40
const LEGEND_STEP = 56

/** The picture as SVG text, with its size in CSS pixels. */
export function toSvg(picture: Picture): { svg: string; width: number; height: number } {
  const { lines, matrix, colours } = picture
  const width = Math.ceil(MARGIN * 2 + lines.width + GAP + matrix.layout.width)
  const perRow = Math.max(1, Math.floor((width - 2 * MARGIN) / LEGEND_STEP))
  const top = MARGIN + 40 + 24 * Math.ceil(picture.heads.length / perRow) + 36
  const body = Math.max(lines.geometry.height, matrix.layout.height + 32)
  const height = Math.ceil(top + body + 24 + 20 * picture.caption.length + MARGIN / 2)
  const parts = [
    `<rect width="${width}" height="${height}" fill="${colours.paper}"/>`,
    text(picture.title, MARGIN, MARGIN + 16, { size: 20, fill: colours.ink, weight: 600 }),
    legend(picture, perRow),
    group(MARGIN, top, linesPart(picture)),
    group(MARGIN + lines.width + GAP, top, matrixPart(picture)),
    ...picture.caption.map((line, i) =>
      text(line, MARGIN, top + body + 28 + 20 * i, { size: 13, fill: colours.muted }),
    ),
  ]
  const svg =
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" ` +
    `viewBox="0 0 ${width} ${height}" font-family="${escapeXml(FONT)}">${parts.join('\n')}</svg>\n`
  return { svg, width, height }
}

function legend({ heads, colours }: Picture, perRow: number): string {
  return heads
    .map(({ head, style }, i) => {
      const x = MARGIN + (i % perRow) * LEGEND_STEP
      const y = MARGIN + 44 + 24 * Math.floor(i / perRow)
      const dash = style.dash.length ? ` stroke-dasharray="${style.dash.join(' ')}"` : ''
      return (
        `<path d="M${x} ${y}h22" stroke="${style.colour}" stroke-width="4"${dash}/>` +
        text(String(head), x + 28, y + 5, { size: 14, fill: colours.ink })
      )
    })
    .join('')
}

function linesPart({ lines, queries, keys, headings, styles, colours, measure }: Picture): string {
  const { width, columnWidth, geometry, links, lit } = lines
  const clip = `<clipPath id="stage"><rect width="${round(width)}" height="${geometry.height}"/></clipPath>`
  const paths = links
    .map((link, at) => path(link, geometry.height, styles, isDashed(at, links.length), lit ? 0.35 : 1))
    .join('')
  const bright = lit ? path(lit, geometry.height, styles, true, 1 / opacity(lit.line.weight)) : ''
  const tokens = (list: PlacedToken[], side: 'query' | 'key') =>
    list.map((token) => tokenPart(token, side, width, columnWidth, geometry.rowHeight, colours)).join('')
  const heading = { size: 13, fill: colours.muted, weight: 600 }
  return (
    clip +
    text(headings.queries, Math.max(columnWidth - 8, measure(headings.queries, 14)), -10, {
      ...heading,
      anchor: 'end',
    }) +
    text(headings.keys, width - columnWidth + 8, -10, heading) +
    `<g clip-path="url(#stage)"><g fill="none">${paths}${bright}</g>` +
    `${tokens(queries, 'query')}${tokens(keys, 'key')}</g>`
  )
}

function tokenPart(
  token: PlacedToken,
  side: 'query' | 'key',
  width: number,
  columnWidth: number,
  rowHeight: number,
  colours: PictureColours,
): string {
  const left = side === 'query'
  const x = left ? columnWidth - 8 : width - columnWidth + 8
  const fill = token.special ? colours.muted : colours.ink
  const style = { size: 16, fill, anchor: left ? 'end' : 'start', weight: token.marked ? 700 : 400 } as const
  const box = (x0: number, w: number, h: number, alpha: number) =>
    `<rect x="${round(x0)}" y="${round(token.y - h / 2)}" width="${round(w)}" height="${h}" rx="3" ` +
    `fill="${colours.accent}" fill-opacity="${round(alpha)}"/>`
  const middle = left ? 27 : width - 27
  return (
    (token.marked ? box(left ? 0 : width - columnWidth, columnWidth, rowHeight, 0.18) : '') +
    (token.number ? box(middle - 18, 36, 20, 0.55 * token.weight) : '') +
    text(token.text, x, token.y + 5, style) +
    (token.number
      ? text(token.number, middle, token.y + 5, { size: 14, fill: colours.ink, anchor: 'middle' })
      : '')
  )
}

function matrixPart({ matrix, headings, markedRow, markedColumn, scale, colours }: Picture): string {
  const { layout, labels, image } = matrix
  const [w, h] = [layout.columns * layout.cell, layout.rows * layout.cell]
  const angle = layout.labelled ? (LEAN * 180) / Math.PI : 0
  const outline = (x: number, y: number, width: number, height: number, stroke: string, thick: number) =>
    `<rect x="${round(x)}" y="${round(y)}" width="${round(width)}" height="${round(height)}" ` +
    `fill="none" stroke="${stroke}" stroke-width="${thick}"/>`
  const parts = [
    text(headings.matrix, 0, -10, { size: 13, fill: colours.muted, weight: 600 }),
    `<pattern id="hatch" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">` +
      `<path d="M0 0V7" stroke="${colours.line}"/></pattern>` +
      `<rect x="${layout.left}" y="${layout.top}" width="${round(w)}" height="${round(h)}" fill="url(#hatch)"/>`,
    image
      ? `<image x="${layout.left}" y="${layout.top}" width="${round(w)}" height="${round(h)}" ` +
        `preserveAspectRatio="none" style="image-rendering:pixelated" href="${image.toDataURL()}"/>`
      : '',
    ...labels.rows.map((l) => text(l.text, l.x, l.y + 4, { size: 13, fill: colours.muted, anchor: 'end' })),
    ...labels.columns.map(
      (l) =>
        `<g transform="translate(${round(l.x)} ${round(l.y)}) rotate(${round(angle)})">` +
        text(l.text, 0, 0, { size: 13, fill: colours.muted, anchor: angle ? 'start' : 'middle' }) +
        '</g>',
    ),
    outline(layout.left, layout.top, w, h, colours.line, 1),
    markedRow < 0
      ? ''
      : outline(layout.left, layout.top + markedRow * layout.cell, w, layout.cell, colours.accent, 2),
    markedColumn < 0
      ? ''
      : outline(layout.left + markedColumn * layout.cell, layout.top, layout.cell, h, colours.accent, 2),
    scalePart(matrix, scale, colours),
  ]
  return parts.join('')
}

function scalePart(matrix: MatrixPicture, scale: Picture['scale'], colours: PictureColours): string {
  const y = matrix.layout.height + 14
  const x = matrix.layout.left
  const style = { size: 13, fill: colours.muted }
  return (
    `<linearGradient id="ramp">${rampStops(matrix)}</linearGradient>` +
    text(scale.from, x - 6, y + 11, { ...style, anchor: 'end' }) +
    `<rect x="${x}" y="${y}" width="120" height="12" fill="url(#ramp)" stroke="${colours.line}"/>` +
    text(scale.to, x + 126, y + 11, style)
  )
}

function rampStops({ low, high }: MatrixPicture): string {
  const steps = 17
  const bytes = ramp(low, high, steps)
  return Array.from({ length: steps }, (_, i) => {
    const colour = bytes.slice(3 * i, 3 * i + 3).join(',')
    return `<stop offset="${round((100 * i) / (steps - 1))}%" stop-color="rgb(${colour})"/>`
  }).join('')
}

function path(link: Link, height: number, styles: HeadStyle[], dashed: boolean, faint: number): string {
  const curve = curveInSight(link, height)
  if (!curve) return ''
  const { weight, head } = link.line
  const style = styles[head]!
  const dash = dashed && style.dash.length ? ` stroke-dasharray="${style.dash.join(' ')}"` : ''
  const [x0, y0, ...rest] = curve.map(round)
  return (
    `<path d="M${x0} ${y0}C${rest.join(' ')}" stroke="${style.colour}" stroke-width="${round(thickness(weight))}" ` +
    `stroke-opacity="${round(Math.min(1, opacity(weight) * faint))}"${dash}/>`
  )
}

interface TextStyle {
  size: number
  fill: string
  weight?: number
  anchor?: 'start' | 'middle' | 'end'
}

function text(content: string, x: number, y: number, style: TextStyle): string {
  if (!content) return ''
  const anchor = style.anchor && style.anchor !== 'start' ? ` text-anchor="${style.anchor}"` : ''
  const weight = style.weight && style.weight !== 400 ? ` font-weight="${style.weight}"` : ''
  return `<text x="${round(x)}" y="${round(y)}" font-size="${style.size}" fill="${style.fill}"${weight}${anchor}>${escapeXml(content)}</text>`
}

function group(x: number, y: number, content: string): string {
  return `<g transform="translate(${round(x)} ${round(y)})">${content}</g>`
}

function round(value: number): number {
  return Math.round(value * 100) / 100
}
