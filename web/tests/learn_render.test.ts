import { expect, test } from 'vitest'
import { timesOf } from '../lessons.plugin'
import { mathml, python, render, split } from '../lessons.render'

const page = (body: string, language: 'en' | 'fr' = 'en') =>
  render(`---\ntitle: a\nidea: b\n---\n${body}`, language)

test('front matter is split from the text', () => {
  expect(split('---\ntitle: Why √d\nidea: a: b\n---\nText')).toEqual({
    meta: { title: 'Why √d', idea: 'a: b' },
    body: 'Text',
  })
  expect(() => split('Text')).toThrow('starts with front matter')
})

test('mathematics becomes MathML, without its source beside it', () => {
  const { html } = page('so $q\\cdot k$: and\n\n$$\\frac{a}{b}$$\n')
  expect(html.match(/<math/g)).toHaveLength(2)
  expect(html).not.toMatch(/\$|annotation|katex/)
  expect(html).toContain('display="block"')
})

test('mathematics that KaTeX does not know stops the build', () => {
  expect(() => mathml('\\nosuch', false)).toThrow()
})

test('a figure takes its caption along, and links of the book are named by page and place', () => {
  const { html, terms, sources } = page(
    '![A [query](term:query) turns.](figure:ask)\n\nSee [softmax](term:softmax), [Vaswani](source:vaswani2017), [3](page:03-why-root-d).',
  )
  expect(html).toContain('<figure data-figure="ask"><figcaption>A ')
  expect(html).toContain('href="page:glossary#softmax"')
  expect(html).toContain('href="page:sources#vaswani2017"')
  expect(html).toContain('href="page:03-why-root-d"')
  expect(terms).toEqual(['query', 'softmax'])
  expect(sources).toEqual(['vaswani2017'])
})

test('underscores mark a word of the other language, asterisks do not', () => {
  expect(page('_chat_ and *who*').html).toContain('<i lang="fr">chat</i> and <em>who</em>')
  expect(page('_cat_', 'fr').html).toContain('<i lang="en">cat</i>')
})

test('headings carry the names that links need', () => {
  expect(page('## query · _requête_ {#query}').html).toContain(
    '<h2 id="query">query · <i lang="fr">requête</i></h2>',
  )
})

test('code is coloured and inert', () => {
  expect(python('for x in "a<b":  # <i>')).toBe(
    '<span class="keyword">for</span> x <span class="keyword">in</span> <span class="string">&quot;a&lt;b&quot;</span>:  <span class="remark"># &lt;i&gt;</span>',
  )
})

test('the measured times are those of the rows that say a way and a length, in seconds', () => {
  const row = { name: 'regard.attention', way: 'full' as const, channels: 64, window: 32 }
  const found = timesOf({
    machine: { cpu: 'A', cores: 2, threads: 2, torch: '2.13', date: '2026-11-29' },
    rows: [{ ...row, length: 256, measured: 2 }, { ...row, length: 512, measured: 8 }, { measured: 5 }],
  })
  expect(found).toMatchObject({ cpu: 'A', date: '2026-11-29', channels: 64, window: 32 })
  expect(found.series).toEqual([
    {
      name: 'regard.attention',
      way: 'full',
      points: [
        [256, 0.002],
        [512, 0.008],
      ],
    },
  ])
})
