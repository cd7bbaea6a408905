// Who walks on from the matrix with the keyboard comes to the numbers of its cell: these stay as long as they are read.
import type { Session } from './session.svelte'

const NUMBERS = '.numbers'

/** Whether the focus goes over to the numbers. */
export function goesToNumbers(event: FocusEvent): boolean {
  return event.relatedTarget instanceof Element && event.relatedTarget.closest(NUMBERS) !== null
}

/** Forget what was pointed at when the focus leaves the numbers. */
export function leaveNumbers(event: FocusEvent, session: Session): void {
  if (goesToNumbers(event)) return
  session.cell = null
  session.pointed = null
}
