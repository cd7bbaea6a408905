import { describe, expect, test } from 'vitest'
import { mergeFragment } from '../src/lib/fragment'
import { parseState, START, stateFragment, type ViewState } from '../src/lib/state'

const parse = (fragment: string) => parseState(new URLSearchParams(fragment))
const write = (state: ViewState, before = '') => mergeFragment(before, stateFragment(state))

describe('the address', () => {
  test('with nothing in it is the view as it starts', () => {
    expect(parse('')).toEqual(START)
    expect(write(START)).toBe('')
  })
  test.each<[string, Partial<ViewState>]>([
    ['layer=2&head=5', { layer: 2, head: 5, heads: [5] }],
    ['layer=2&heads=all&head=5', { layer: 2, head: 5, heads: null }],
    ['heads=0,3,11&head=3', { heads: [0, 3, 11], head: 3 }],
    [
      'layer=0&token=q4&pair=ab&special=0&min=0.25',
      { layer: 0, token: { side: 'query', index: 4 }, pair: 'ab', special: false, min: 0.25 },
    ],
    [
      'kind=cross&layer=1&nth=1&token=k0',
      { kind: 'cross', layer: 1, nth: 1, token: { side: 'key', index: 0 } },
    ],
    ['map=120,7,300&pool=mean', { map: { row: 120, column: 7, across: 300 }, pool: 'mean' }],
    ['heads=&head=2', { heads: [], head: 2 }],
  ])('%s says what it says, and is written the same way', (fragment, expected) => {
    expect(parse(fragment)).toEqual({ ...START, ...expected })
    expect(parse(write(parse(fragment)))).toEqual(parse(fragment))
  })
  test('that makes no sense counts as not said', () => {
    expect(parse('layer=-1&head=x&token=z9&pair=cc&min=7&special=maybe&map=1,2&pool=median')).toEqual(START)
    expect(parse('map=1,2,0&map=3')).toEqual(START)
    expect(parse('layer=99999999999')).toEqual(START)
  })
  test('keeps what other parts of the page wrote', () => {
    expect(write({ ...START, layer: 3 }, 'lang=fr&layer=1&theme=dark')).toBe('lang=fr&layer=3&theme=dark')
    expect(write(START, 'lang=fr&pair=ab')).toBe('lang=fr')
  })
})
