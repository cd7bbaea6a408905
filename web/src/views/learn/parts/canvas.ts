// A canvas that repaints when what it reads changes, when it is resized and when the theme changes.
import type { Attachment } from 'svelte/attachments'
import { isDark } from '../../../lib/theme.svelte'

export interface Inks {
  ink: string
  muted: string
  line: string
  accent: string
  warn: string
  low: string
  high: string
}

/** The page's colours as the canvas needs them: custom properties hold light-dark(), which only a real property resolves. */
function inks(node: HTMLElement): Inks {
  const resolved = (name: string) => {
    node.style.color = `var(--${name})`
    return getComputedStyle(node).color
  }
  return {
    ink: resolved('ink'),
    muted: resolved('muted'),
    line: resolved('line'),
    accent: resolved('accent'),
    warn: resolved('warn'),
    low: resolved('ramp-low'),
    high: resolved('ramp-high'),
  }
}

export type Paint = (context: CanvasRenderingContext2D, width: number, height: number, inks: Inks) => void

/** {@attach picture((context, width, height, inks) => …)}: sizes are in CSS pixels. */
export function picture(paint: Paint): Attachment<HTMLCanvasElement> {
  return (node) => {
    const draw = () => {
      const { clientWidth: width, clientHeight: height } = node
      const density = devicePixelRatio || 1
      node.width = Math.round(width * density)
      node.height = Math.round(height * density)
      const context = node.getContext('2d')
      if (!context || !width) return
      context.scale(density, density)
      paint(context, width, height, inks(node))
    }
    isDark()
    draw()
    const observer = new ResizeObserver(draw)
    observer.observe(node)
    const paper = matchMedia('print') // light, whatever the theme on screen
    paper.addEventListener('change', draw)
    return () => {
      observer.disconnect()
      paper.removeEventListener('change', draw)
    }
  }
}
