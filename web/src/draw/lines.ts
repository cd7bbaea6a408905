// Lines between tokens on a canvas. The same links become paths in an exported SVG (draw/picture.ts).
import type { HeadStyle } from '../lib/colours'
import { bend, opacity, thickness, type Link } from '../lib/lines'

/** Give a canvas the pixels of the screen; returns a context whose unit is the CSS pixel, cleared. */
export function prepare(canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D {
  const ratio = window.devicePixelRatio || 1
  const [pixelsWide, pixelsHigh] = [Math.round(width * ratio), Math.round(height * ratio)]
  if (canvas.width !== pixelsWide) canvas.width = pixelsWide
  if (canvas.height !== pixelsHigh) canvas.height = pixelsHigh
  const context = canvas.getContext('2d')!
  context.setTransform(ratio, 0, 0, ratio, 0, 0)
  context.clearRect(0, 0, width, height)
  return context
}

/** Draw `links`, the last on top. `faint` < 1 lets them stand back behind a lit line. */
export function drawLinks(
  context: CanvasRenderingContext2D,
  links: Link[],
  styles: HeadStyle[],
  faint = 1,
): void {
  context.lineCap = 'butt'
  for (const link of links) {
    const { weight, head } = link.line
    const style = styles[head]!
    context.strokeStyle = style.colour
    context.globalAlpha = opacity(weight) * faint
    context.lineWidth = thickness(weight)
    context.setLineDash(style.dash)
    trace(context, link)
  }
  context.globalAlpha = 1
  context.setLineDash([])
}

/** Draw one link so that it stands out: full colour on a halo of the background's colour. */
export function lightLink(
  context: CanvasRenderingContext2D,
  link: Link,
  style: HeadStyle,
  background: string,
): void {
  context.strokeStyle = background
  context.lineWidth = thickness(link.line.weight) + 5
  trace(context, link)
  context.strokeStyle = style.colour
  context.lineWidth = thickness(link.line.weight) + 1
  context.setLineDash(style.dash)
  trace(context, link)
  context.setLineDash([])
}

function trace(context: CanvasRenderingContext2D, link: Link): void {
  const middle = bend(link)
  context.beginPath()
  context.moveTo(link.x0, link.y0)
  context.bezierCurveTo(middle, link.y0, middle, link.y1, link.x1, link.y1)
  context.stroke()
}
