// What the recorder has to say of a recording, in the reader's language.
import { language, typeset } from '../../lib/i18n.svelte'
import type { Note } from '../../lib/payload'

export function noteIn(note: Note): string {
  return typeset(typeof note === 'string' ? note : note[language()])
}

/** Whether a part of the run is missing: that is said before the numbers, not below them. */
export function tellsOfMissing(note: Note): boolean {
  return typeof note !== 'string' && note.missing === true
}
