import { expect, test } from 'vitest'
import en from '../src/i18n/en.json'
import fr from '../src/i18n/fr.json'
import { moment, number, percent, scientific, setLanguage, typeset, weight } from '../src/lib/i18n.svelte'

function keys(words: object, prefix = ''): string[] {
  return Object.entries(words).flatMap(([key, value]) =>
    typeof value === 'string' ? [prefix + key] : keys(value as object, `${prefix}${key}.`),
  )
}

test('both languages have the same keys', () => {
  expect(keys(fr).sort()).toEqual(keys(en).sort())
})

test('placeholders are the same in both languages', () => {
  const holes = (text: string) => [...text.matchAll(/\{\w+\}/g)].map(String).sort()
  const read = (words: object, key: string) =>
    key.split('.').reduce<unknown>((node, part) => (node as Record<string, unknown>)[part], words) as string
  for (const key of keys(en)) expect(holes(read(fr, key)), key).toEqual(holes(read(en, key)))
})

test('each language sets its signs its own way', () => {
  const texts = (words: object): string[] =>
    Object.values(words).flatMap((value) => (typeof value === 'string' ? [value] : texts(value as object)))
  for (const text of texts(en)) expect(text).not.toMatch(/\s%/)
  for (const text of texts(fr)) {
    expect(text).not.toMatch(/[^\s(«\u00a0\u202f][;?!»%](?!\d)|[ ][:;?!»%](?!\w)|« /)
    expect(text).not.toMatch(/\w'\w/)
  }
})

test('a number below zero has a true minus, and nothing is minus nought', () => {
  expect(number(-4)).toBe('−4.00')
  expect(number(-0.001)).toBe('0.00')
  expect(number(-0.01)).toBe('−0.01')
})

test('a weight or share that is neither nought nor all is never written as such', () => {
  const weights = [0, 1e-9, 4e-4, 6e-4, 0.0094, 0.01, 0.58, 0.994, 0.996, 0.9996, 1 - 1e-7, 1]
  expect(weights.map(weight)).toEqual([
    '0.00',
    '<0.001',
    '<0.001',
    '0.001',
    '0.009',
    '0.01',
    '0.58',
    '0.99',
    '0.996',
    '>0.999',
    '1.00',
    '1.00',
  ])
  const shares = [0, 1e-9, 0.0049, 0.006, 0.61, 0.9949, 0.9951, 1 - 1e-7, 1]
  expect(shares.map(percent)).toEqual(['0%', '<1%', '<1%', '1%', '61%', '99%', '>99%', '100%', '100%'])
  setLanguage('fr')
  expect([0.004, 0.999].map(percent)).toEqual(['<1\u00a0%', '>99\u00a0%'])
  expect(weight(0.0001)).toBe('<0,001')
  setLanguage('en')
})

test('what other programs say gets the spaces and dates of the language', () => {
  const said = 'Incomplet : « deux » ; vraiment ? « a:b » à 50 %.'
  expect(typeset(said)).toBe(said)
  setLanguage('fr')
  expect(typeset(said)).toBe(
    'Incomplet\u00a0: «\u00a0deux\u00a0»\u202f; vraiment\u202f? «\u00a0a:b\u00a0» à 50\u00a0%.',
  )
  expect(moment('2026-11-29T12:00:00Z')).toMatch(/^29 novembre 2026/)
  expect(scientific(3.2e-7)).toBe('3,2\u00a0×\u00a010⁻⁷')
  setLanguage('en')
  expect(moment('2026-11-29T12:00:00Z')).toMatch(/November/)
  expect(moment('some day')).toBe('some day')
})
