import { deflateSync } from 'node:zlib'
import { describe, expect, test } from 'vitest'
import { decodeBase64 } from '../src/lib/base64'
import { Layers } from '../src/lib/layers'
import { checkHeader, decodeChunk, type Header, type Site } from '../src/lib/payload'
import { embedded, type Source } from '../src/lib/source'

const site: Site = {
  name: 'layer.0',
  layer: 0,
  kind: 'self',
  heads: 2,
  queries: 'text',
  keys: 'text',
  causal: false,
  max_error: 1e-7,
  bytes: 0,
  precision: 0.001,
}
const header: Header = {
  format: 'regard.payload',
  version: 1,
  text: ['a b'],
  model: { name: 'tiny' },
  provenance: {
    kernel: 'sdpa',
    dtype: 'float32',
    device: 'cpu',
    door: 'interface',
    rows_checked: 4,
    max_error: 1e-7,
    created: '',
    versions: {},
  },
  sequences: { text: { tokens: ['a', 'b'], special: [false, false], segments: [0, 0] } },
  sites: [site],
}

function chunk(steps: number[], codes: number[]): Uint8Array<ArrayBuffer> {
  const raw = Buffer.alloc(4 * steps.length + codes.length)
  steps.forEach((step, i) => raw.writeFloatLE(step, 4 * i))
  raw.set(codes, 4 * steps.length)
  return new Uint8Array(deflateSync(raw))
}
const good = chunk([0.5, 0.25, 0.1, 0], [1, 1, 4, 0, 3, 7, 0, 0])

test('heads that were kept alone have the numbers of the model', async () => {
  const some = { ...site, head_numbers: [3, 7], all_heads: 12 }
  const weights = await decodeChunk(good, some, header.sequences)
  expect(weights.numbers).toEqual([3, 7])
  const all = await decodeChunk(good, site, header.sequences)
  for (const query of [0, 1])
    for (const key of [0, 1]) {
      expect(weights.at(3, query, key)).toBe(all.at(0, query, key))
      expect(weights.at(7, query, key)).toBe(all.at(1, query, key))
    }
  expect(() => checkHeader({ ...header, sites: [{ ...some, head_numbers: [3] }] })).toThrow('damaged')
})

test('a weight is its code times the step of its row', async () => {
  const weights = await decodeChunk(good, site, header.sequences)
  expect(weights.at(0, 0, 1)).toBe(0.5)
  expect(weights.at(0, 1, 0)).toBe(1)
  expect(weights.at(1, 0, 1)).toBeCloseTo(0.7, 6)
  expect(weights.at(1, 1, 0)).toBe(0)
})

test('a learned sink is one more column after the last key', async () => {
  const withSink = chunk([0.5, 0.25, 0.1, 0], [1, 0, 1, 1, 1, 2, 4, 0, 6, 0, 0, 0])
  const weights = await decodeChunk(withSink, { ...site, sinks: true }, header.sequences)
  expect(weights.keys).toBe(3)
  expect(weights.at(0, 0, 2)).toBe(0.5)
  expect(weights.at(1, 0, 2)).toBeCloseTo(0.6, 6)
})

test('a chunk of the wrong size, or one that is not zlib, is called damaged', async () => {
  const short = chunk([0.5], [1, 1])
  await expect(decodeChunk(short, site, header.sequences)).rejects.toThrow('damaged: layer.0 has 6 bytes')
  await expect(decodeChunk(new Uint8Array([1, 2, 3]), site, header.sequences)).rejects.toThrow('damaged')
})

describe('a header', () => {
  test('of this format is taken as it is', () => expect(checkHeader(header)).toBe(header))
  test('of something else is refused as foreign', () => {
    expect(() => checkHeader({ format: 'other' })).toThrow('foreign')
    expect(() => checkHeader(null)).toThrow('foreign')
  })
  test('of a newer version says so', () =>
    expect(() => checkHeader({ ...header, version: 2 })).toThrow('newer: version 2'))
  test('whose site names an unknown sequence is damaged', () =>
    expect(() => checkHeader({ ...header, sites: [{ ...site, keys: 'nowhere' }] })).toThrow('damaged'))
  test('whose lists differ in length is damaged', () => {
    const text = { ...header.sequences.text!, special: [true] }
    expect(() => checkHeader({ ...header, sequences: { text } })).toThrow('damaged: site layer.0')
  })
})

describe('the data of a page', () => {
  const packed = (extra: object) => JSON.stringify({ kind: 'recording', header, chunks: [], ...extra })
  test('gives the chunks back byte for byte', async () => {
    const source = embedded(packed({ chunks: [Buffer.from(good).toString('base64')] }))!
    expect([...(await source.chunk(0))]).toEqual([...good])
    expect(source.live).toBe(false)
  })
  test('that is null, as in the application, is no recording', () => {
    expect(embedded('\n null \n')).toBeNull()
    expect(embedded(undefined)).toBeNull()
  })
  test('that is cut off is damaged, and never an exception of the parser', () => {
    expect(() => embedded('{"kind": "rec')).toThrow('damaged')
    expect(() => embedded(packed({}))).toThrow('damaged: chunks are missing')
  })
})

test('base64 that is none is refused with a sentence', () => {
  expect([...decodeBase64('AAH/')]).toEqual([0, 1, 255])
  expect(() => decodeBase64('*')).toThrow('a chunk is not base64')
})

describe('the layers looked at', () => {
  const counting = (fail = false) => {
    const asked: number[] = []
    const source: Source = {
      header: { ...header, sites: [site, site, site] },
      live: false,
      chunk: async (index) => {
        asked.push(index)
        if (fail && asked.length === 1) throw new Error('gone')
        return good
      },
    }
    return { asked, layers: new Layers(source, 2) }
  }
  test('are decoded once while they are kept, the oldest leaves first', async () => {
    const { asked, layers } = counting()
    for (const index of [0, 1, 0, 2, 0, 1]) await layers.get(index)
    expect(asked).toEqual([0, 1, 2, 1])
  })
  test('are asked for again after a failure', async () => {
    const { layers } = counting(true)
    await expect(layers.get(0)).rejects.toThrow('gone')
    expect((await layers.get(0)).heads).toBe(2)
  })
})
