// The book that the build (or the writer of the offline folder) put into this page, and where the page stands.
import { COVER, type Book, type Place } from '../../lib/learn/book'

function read<T>(id: string): T | null {
  const text = document.getElementById(id)?.textContent
  return text ? (JSON.parse(text) as T | null) : null
}

export const book: Book = read<Book>('regard-lessons') ?? { languages: { en: [], fr: [] }, measured: null }

const data = read<{ kind: string; page: string }>('regard-data')
const folder = data?.kind === 'lesson'
export const place: Place = {
  folder,
  slug: folder ? data.page : COVER,
  language: document.documentElement.lang === 'fr' ? 'fr' : 'en',
}
