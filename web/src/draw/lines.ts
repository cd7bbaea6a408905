// Lines between tokens on a canvas. The same links become paths in an exported SVG (draw/picture.ts).
import type { HeadStyle } from '../lib/colours'
import { curveInSight, isDashed, opacity, thickness, type Link } from '../lib/lines'

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

export interface Stage {
  styles: HeadStyle[]
  /** Pixels in sight; what lies beyond is not drawn. */
  height: number
  background: string
}

/** Draw `links`, the last on top. `faint` < 1 lets them stand back behind a lit line. */
export function drawLinks(context: CanvasRenderingContext2D, links: Link[], stage: Stage, faint = 1): void {
  links.forEach((link, at) => {
    const { weight, head } = link.line
    const style = stage.styles[head]!
    context.strokeStyle = style.colour
    context.globalAlpha = opacity(weight) * faint
    context.lineWidth = thickness(weight)
    context.setLineDash(isDashed(at, links.length) ? style.dash : [])
    trace(context, link, stage.height)
  })
  context.globalAlpha = 1
  context.setLineDash([])
}

/** Draw one link so that it stands out: full colour on a halo of the background's colour. */
export function lightLink(context: CanvasRenderingContext2D, link: Link, stage: Stage): void {
  const style = stage.styles[link.line.head]!
  context.strokeStyle = stage.background
  context.lineWidth = thickness(link.line.weight) + 5
  trace(context, link, stage.height)
  context.strokeStyle = style.colour
  context.lineWidth = thickness(link.line.weight) + 1
  context.setLineDash(style.dash)
  trace(context, link, stage.height)
  context.setLineDash([])
}

function trace(context: CanvasRenderingContext2D, link: Link, height: number): void {
  const curve = curveInSight(link, height)
  if (!curve) return
  const [x0, y0, ...rest] = curve
  context.beginPath()
  context.moveTo(x0, y0)
  context.bezierCurveTo(...rest)
  context.stroke()
}
