import { describe, expect, test } from 'vitest'
import { find, join } from '../src/lib/find'
import { linesAround, meansAround, startMin, stubs, type Around } from '../src/lib/long'
import { TileStore, type Picture } from '../src/lib/tiles'

const around: Around = {
  side: 'query',
  index: 900,
  heads: [0, 1],
  others: [3, 500, 899],
  weights: [
    [0.6, 0.1, 0.2],
    [0.0, 0.5, 0.3],
  ],
  outside: [0.1, 0.2],
  sinks: null,
}

describe('what a token reads', () => {
  test('is a line for every weight of the heads shown that reaches the threshold, the weakest first', () => {
    expect(linesAround(around, [1], 0.2)).toEqual([
      { head: 1, query: 900, key: 899, weight: 0.3 },
      { head: 1, query: 900, key: 500, weight: 0.5 },
    ])
    expect(linesAround(around, [0, 1], 0)).toHaveLength(5)
    expect(linesAround({ ...around, side: 'key' }, [0], 0.5)).toEqual([
      { head: 0, query: 3, key: 900, weight: 0.6 },
    ])
  })
  test('is, as a number, the mean over the heads shown', () => {
    expect([...meansAround(around, [0, 1])]).toEqual([
      [3, 0.3],
      [500, 0.3],
      [899, 0.25],
    ])
  })
  test('ends out of sight are named once, the strongest first', () => {
    const lines = linesAround(around, [0, 1], 0)
    const { before, after } = stubs(lines, 'key', [600, 700])
    expect(before.map((stub) => stub.index)).toEqual([3, 500])
    expect(after).toEqual([{ index: 899, weight: 0.3, head: 1 }])
    expect(stubs(lines, 'key', [0, 1000])).toEqual({ before: [], after: [] })
  })
  test('the first threshold leaves half as many lines as rows and heads', () => {
    const lines = [0.4, 0.25, 0.15, 0.08].map((weight, query) => ({ head: 0, query, key: 0, weight }))
    expect(startMin(lines, 1)).toBe(0.2)
    expect(startMin([], 4)).toBe(0.3)
  })
})

describe('finding', () => {
  test('goes across the pieces of words, without regard to case', () => {
    const words = join(['[CLS]', 'The', 'pay', '##load', 'of', 'the', 'pay', '##er', '##s'])
    expect(find(words, 'payload')).toEqual([2])
    expect(find(words, 'the pay')).toEqual([1, 5])
    expect(find(words, 'nothing')).toEqual([])
    expect(find(words, '  ')).toEqual([])
  })
  test('reads tokens that carry their spaces as they are', () => {
    const words = join(['Once', ' upon', ' a', ' ti', 'me', '.'])
    expect(find(words, 'time.')).toEqual([3])
    expect(find(words, 'upon a')).toEqual([1])
  })
  test('goes to a position', () => {
    const words = join(['a', 'b', 'c'])
    expect(find(words, '#2')).toEqual([2])
    expect(find(words, '#3')).toEqual([])
  })
})

describe('tiles on their way', () => {
  const picture: Picture = { site: 0, head: 1, reduce: 'max', rows: 1000, columns: 1000 }
  const places = [0, 1, 2, 3].map((column) => ({ level: 0, row: 0, column }))

  function counting() {
    const asked: { path: string; signal: AbortSignal; answer: () => void }[] = []
    const store = new TileStore(
      (path, signal) =>
        new Promise((answer, refuse) => {
          const [, , , , row, column] = path.split('?')[0]!.split('/').map(Number)
          const bytes = new Uint8Array(
            4 + 2 * Math.min(256, 1000 - 256 * row!) * Math.min(256, 1000 - 256 * column!),
          )
          signal.addEventListener('abort', () => refuse(new Error('aborted')))
          asked.push({ path, signal, answer: () => answer(new Response(bytes)) })
        }),
      () => undefined,
    )
    return { asked, store }
  }
  const turns = () => new Promise((done) => setTimeout(done))

  test('are asked for a few at a time, in order', async () => {
    const { asked, store } = counting()
    store.want(picture, places)
    expect(asked.map((a) => a.path)).toEqual([0, 1, 2].map((c) => `tiles/0/1/0/0/${c}?reduce=max`))
    asked[0]!.answer()
    await turns()
    expect(asked).toHaveLength(4)
    expect(store.get(picture, places[0]!)).not.toBeNull()
    expect(store.get({ ...picture, head: 2 }, places[0]!)).toBeNull()
  })
  test('are called off when they are no longer wanted, and never asked for twice', async () => {
    const { asked, store } = counting()
    store.want(picture, places.slice(0, 2))
    store.want(picture, places.slice(1, 3))
    await turns()
    expect(asked[0]!.signal.aborted).toBe(true)
    expect(asked.map((a) => a.signal.aborted)).toEqual([true, false, false])
    expect(store.failure).toBeNull()
  })
  test('that fail are not asked for again until the reader wants to', async () => {
    let calls = 0
    const store = new TileStore(
      async () => {
        calls++
        throw new Error('refused')
      },
      () => undefined,
    )
    store.want(picture, places.slice(0, 1))
    await turns()
    expect(calls).toBe(1)
    expect(store.failure).toBeInstanceOf(Error)
    store.want(picture, places.slice(0, 1))
    await turns()
    expect(calls).toBe(2)
  })
  test('are stood in for by the part of a coarser one that shows the same', async () => {
    const bytes = new Uint8Array(4 + 2 * 250 * 250)
    const store = new TileStore(
      async () => new Response(bytes),
      () => undefined,
    )
    store.want(picture, [{ level: 2, row: 0, column: 0 }])
    await turns()
    expect(store.above(picture, { level: 0, row: 2, column: 3 }, 2)).toMatchObject({
      x: 192,
      y: 128,
      side: 64,
    })
    expect(store.above(picture, { level: 1, row: 1, column: 0 }, 2)).toMatchObject({
      x: 0,
      y: 128,
      side: 128,
    })
    expect(store.above(picture, { level: 1, row: 1, column: 0 }, 1)).toBeNull()
  })
})
