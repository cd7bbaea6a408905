// The cells of a matrix on a canvas: one image, scaled without smoothing, with hairlines between cells where they fit.
import type { MatrixLayout, Pixels } from '../lib/matrix'

const SMALLEST_RULED = 9

/** The pixels as a small canvas of their own. */
export function asImage(pixels: Pixels): HTMLCanvasElement {
  const image = document.createElement('canvas')
  image.width = pixels.width
  image.height = pixels.height
  image.getContext('2d')!.putImageData(new ImageData(pixels.data, pixels.width, pixels.height), 0, 0)
  return image
}

/** Draw the cells; the canvas covers the cells only, without the labels. */
export function drawMatrix(
  context: CanvasRenderingContext2D,
  image: HTMLCanvasElement,
  layout: MatrixLayout,
  background: string,
): void {
  const { cell, columns, rows } = layout
  const [width, height] = [columns * cell, rows * cell]
  context.imageSmoothingEnabled = false
  context.drawImage(image, 0, 0, width, height)
  if (cell < SMALLEST_RULED) return
  context.fillStyle = background
  for (let column = 1; column < columns; column++) context.fillRect(column * cell - 0.5, 0, 1, height)
  for (let row = 1; row < rows; row++) context.fillRect(0, row * cell - 0.5, width, 1)
}
