import { expect, test } from 'vitest'
import en from '../src/i18n/en.json'
import fr from '../src/i18n/fr.json'

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
