// What the build puts into the page: every chapter in both languages, and the measured times for the chapter on cost.
// In the offline folder a page holds its own text only; the others are named (html = null) and are files of their own.
import type { Language } from '../i18n.svelte'

export interface Term {
  id: string
  here: string
  there: string
}

export interface Chapter {
  slug: string
  /** 1 to 10; 0 for the glossary and the sources. */
  number: number
  title: string
  idea: string
  terms: Term[]
  html: string | null
}

/** Seconds for one call at each length, as benchmarks/length.py measured them. */
export interface Measured {
  date: string
  cpu: string
  threads: number
  torch: string
  channels: number
  window: number
  series: { name: string; way: 'full' | 'window' | 'linear'; points: [length: number, seconds: number][] }[]
}

export interface Book {
  languages: Record<Language, Chapter[]>
  measured: Measured | null
}

/** Where the page stands: one file for all, or one file a chapter in a folder. */
export interface Place {
  folder: boolean
  slug: string
  /** The language of this file of the folder. */
  language: Language
}

export const COVER = 'index'

/** The link to a page: a fragment in the single file, a relative path in the folder. `keep` are keys of the present
 *  fragment that go along, such as the theme. */
export function href(
  place: Place,
  to: Language,
  slug: string,
  anchor = '',
  keep: Record<string, string> = {},
): string {
  const state = new URLSearchParams({ ...keep, ...(anchor && { at: anchor }) })
  if (!place.folder)
    return `#${new URLSearchParams({ page: slug, lang: to })}${state.size ? `&${state}` : ''}`
  const path = place.language === to ? `${slug}.html` : `../${to}/${slug}.html`
  return state.size ? `${path}#${state}` : path
}

/** Turns href="page:slug#id" of the rendered lessons into links of this place. */
export function withLinks(html: string, link: (slug: string, anchor?: string) => string): string {
  return html.replace(/href="page:([\w-]+)(?:#([\w-]+))?"/g, (_whole, slug: string, anchor?: string) => {
    return `href="${link(slug, anchor).replaceAll('&', '&amp;')}"`
  })
}

/** The page that a fragment names; the cover when it names none of the book. */
export function slugOf(fragment: URLSearchParams, chapters: readonly Chapter[]): string {
  const asked = fragment.get('page')
  return chapters.some(({ slug }) => slug === asked) ? asked! : COVER
}
