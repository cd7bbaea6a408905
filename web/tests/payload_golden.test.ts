import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { embedded } from '../src/lib/source'
import { decodeChunk } from '../src/lib/payload'

const file = new URL('../../tests/golden/payload.json', import.meta.url)
const golden = JSON.parse(readFileSync(file, 'utf8')) as {
  header: unknown
  chunks: string[]
  weights: number[][][][]
  shown: number[][][][]
}
const source = embedded(JSON.stringify({ kind: 'recording', header: golden.header, chunks: golden.chunks }))!

test.each(source.header.sites.map((site, index) => [site.name, index] as const))(
  'the page reads %s as Python does, and within the precision that the file states',
  async (_name, index) => {
    const site = source.header.sites[index]!
    const weights = await decodeChunk(await source.chunk(index), site, source.header.sequences)
    golden.shown[index]!.forEach((rows, head) =>
      rows.forEach((row, query) =>
        row.forEach((shown, key) => {
          const here = weights.at(head, query, key)
          expect(Math.fround(here)).toBeCloseTo(shown, 7)
          const exact = golden.weights[index]![head]![query]![key]!
          expect(Math.abs(here - exact)).toBeLessThanOrEqual(site.precision + 1e-7)
        }),
      ),
    )
  },
)
