// What a reader set in the figures of the open page, kept while the language changes: a page is then drawn anew in the
// other language, and its figures with it. Turning the page forgets it.
import { untrack } from 'svelte'
import { twinPlace } from '../../lib/explore/example'
import { language, type Language } from '../../lib/i18n.svelte'

const shelf = new Map<string, { said: Language; state: unknown }>()

/** For each place of the sentence in the language of then, where its word stands in the language of now. */
export type Twin = (place: number) => number

/** What the figure `name` kept, or undefined. `translate` says what becomes of places when the language is another. */
export function recall<T>(
  name: string,
  translate: (state: T, twin: Twin) => T = (state) => state,
): T | undefined {
  const found = shelf.get(name) as { said: Language; state: T } | undefined
  if (!found) return undefined
  const now = untrack(language)
  return found.said === now
    ? found.state
    : translate(found.state, (place) => twinPlace(place, found.said, now))
}

/** Keep what `read` says, now and whenever it changes. To be called while a figure is set up. */
export function keep<T>(name: string, read: () => T): void {
  const said = untrack(language)
  $effect(() => void shelf.set(name, { said, state: $state.snapshot(read()) }))
}

export const forget = (): void => shelf.clear()

/** A list with one entry a place, in the order of the other language. */
export function reordered<T>(list: readonly T[], twin: Twin): T[] {
  const next = [...list]
  list.forEach((entry, place) => (next[twin(place)] = entry))
  return next
}
