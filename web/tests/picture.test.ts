import { describe, expect, test } from 'vitest'
import { toSvg, type Picture, type PlacedToken } from '../src/draw/picture'
import { withView } from '../src/draw/save'
import { layoutMatrix, matrixLabels } from '../src/lib/matrix'

const hostile = `</text><script>alert(1)</script>`
const token = (text: string, y: number): PlacedToken => ({
  text,
  y,
  number: '0.42',
  weight: 0.42,
  marked: false,
  special: false,
})
const layout = layoutMatrix(2, 2, { width: 400, height: 400, rowLabel: 30, columnLabel: 30 })
const geometry = { left: 100, right: 300, rowHeight: 40, scrollTop: 0, height: 80 }
const line = { head: 1, query: 0, key: 1, weight: 0.42 }
const picture: Picture = {
  title: hostile,
  headings: { queries: 'asks', keys: 'is read', matrix: 'Matrix' },
  lines: {
    geometry,
    links: [
      { x0: 100, y0: 20, x1: 300, y1: 60, line },
      { x0: 100, y0: -900, x1: 300, y1: -500, line },
    ],
    lit: null,
    width: 400,
    columnWidth: 100,
  },
  matrix: {
    layout,
    labels: matrixLabels(layout, [hostile, 'b'], ['a', 'b']),
    image: null,
    upTo: '0.42',
    low: '#ffffff',
    high: '#10243f',
  },
  queries: [token(hostile, 20), token('b', 60)],
  keys: [token('مرحبا', 20), token('b\u0000', 60)],
  markedRow: 0,
  markedColumn: -1,
  heads: [{ head: 1, style: { colour: '#ff0000', dash: [4, 3] } }],
  styles: [
    { colour: '#00ff00', dash: [] },
    { colour: '#ff0000', dash: [4, 3] },
  ],
  scale: { from: '0', to: '0.42 weight' },
  caption: ['minilm', hostile],
  colours: { paper: '#fff', ink: '#000', muted: '#555', line: '#ddd', accent: '#00f' },
  measure: (text, size) => 0.6 * size * text.length,
}

describe('the exported SVG', () => {
  const { svg, width, height } = toSvg(picture)
  test('holds every token, number and caption as inert text', () => {
    expect(svg).not.toContain('<script')
    expect(svg.match(/&#60;script&#62;/g)).toHaveLength(4)
    for (const text of ['مرحبا', '0.42', 'minilm', 'asks']) expect(svg).toContain(text)
    expect(svg).not.toContain('\u0000')
  })
  test('draws the lines in sight, in the colour and dash of their head, and no other', () => {
    const paths = svg.match(/<path d="M100 20C[^>]*>/g)!
    expect(paths).toHaveLength(1)
    expect(paths[0]).toContain('stroke="#ff0000"')
    expect(paths[0]).toContain('stroke-dasharray="4 3"')
    expect(svg.match(/C/g)!.length).toBeLessThan(5)
  })
  test('closes every element that it opens and refers to nothing outside', () => {
    const opened = svg.match(/<[a-zA-Z][^>]*[^/]>/g)!.length
    expect(svg.match(/<\/[a-zA-Z]+>/g)).toHaveLength(opened)
    expect(svg.replace('http://www.w3.org/2000/svg', '')).not.toMatch(/https?:|url\((?!#)/)
    expect(svg).toContain(`viewBox="0 0 ${width} ${height}"`)
  })
})

test('a saved page opens as the view stands, and its state can not break out of the attribute', () => {
  const html = '<!doctype html><html lang="fr" data-view="layer=1"><body>$&</body></html>'
  expect(withView(html, 'layer=2&head=5')).toBe(
    '<!doctype html><html lang="en" data-view="layer=2&amp;head=5"><body>$&</body></html>',
  )
  expect(withView(html, '"><script>')).not.toContain('<script>')
})
