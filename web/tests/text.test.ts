import { describe, expect, test } from 'vitest'
import { escapeXml, fileStem, fitted, label, visible } from '../src/lib/text'

describe('a token', () => {
  test('keeps its letters, whatever the language', () => {
    for (const token of ['fox', ' été', 'مرحبا', '你好', '👩‍👩‍👧‍👦', '##ing']) expect(visible(token)).toBe(token)
  })
  test('shows what is invisible', () => {
    expect(visible('\u0000')).toBe('␀')
    expect(visible('a\n\tb')).toBe('a⏎⇥b')
    expect(visible('   ')).toBe('␣␣␣')
    expect(visible('')).toBe('∅')
    expect(visible('\u007f')).toBe('␡')
  })
  test('can not turn the line around', () => {
    expect(visible('\u202eevil')).toBe('‹U+202E›evil')
    expect(visible('\u2066x')).toBe('‹U+2066›x')
  })
  test('of 10,000 letters becomes a short label', () => {
    expect(label('a'.repeat(10_000))).toBe('a'.repeat(27) + '…')
  })
  test('is never cut inside a letter', () => {
    const family = '👩‍👩‍👧‍👦'
    expect(label(family.repeat(5), 3)).toBe(family.repeat(2) + '…')
    expect(label(family, 3)).toBe(family)
  })
  test('fits the room that there is', () => {
    const width = (text: string) => 10 * text.length
    expect(fitted('internationalisation', 80, width)).toBe('interna…')
    expect(fitted('fox', 80, width)).toBe('fox')
  })
})

describe('text in an SVG', () => {
  test('is inert', () => {
    const escaped = escapeXml(`</text><script x='1' y="2">&`)
    expect(escaped).not.toMatch(/[<>"']/)
    expect(escaped).toContain('&#60;/text&#62;')
  })
  test('holds no character that XML forbids', () => {
    expect(escapeXml('a\u0000b\ud800c')).toBe('a\ufffdb\ufffdc')
    expect(escapeXml('👩‍👧')).toBe('👩‍👧')
  })
})

test('a file is named after its text', () => {
  expect(fileStem('The quick brown fox!')).toBe('the-quick-brown-fox')
  expect(fileStem('L’été à Nîmes')).toBe('l-ete-a-nimes')
  expect(fileStem('…')).toBe('regard')
  expect(fileStem('../../etc/passwd')).toBe('etc-passwd')
})
