// Undo and redo over values that never change. Steps of one gesture (the same label, in a row) count as one.

export interface History<T> {
  readonly past: readonly T[]
  readonly present: T
  readonly future: readonly T[]
  /** The gesture that made the present, while it goes on. */
  readonly gesture: string | null
}

const LIMIT = 200

export const begin = <T>(present: T): History<T> => ({ past: [], present, future: [], gesture: null })

/** `next` becomes the present. With the label of the gesture that goes on, it replaces the present instead. */
export function step<T>(history: History<T>, next: T, gesture: string | null = null): History<T> {
  if (next === history.present) return history
  if (gesture !== null && gesture === history.gesture) return { ...history, present: next, future: [] }
  return { past: [...history.past, history.present].slice(-LIMIT), present: next, future: [], gesture }
}

/** The gesture is over: the next step is one of its own. */
export const settle = <T>(history: History<T>): History<T> =>
  history.gesture === null ? history : { ...history, gesture: null }

export function undo<T>({ past, present, future }: History<T>): History<T> {
  const before = past.at(-1)
  if (before === undefined) return { past, present, future, gesture: null }
  return { past: past.slice(0, -1), present: before, future: [present, ...future], gesture: null }
}

export function redo<T>({ past, present, future }: History<T>): History<T> {
  const after = future[0]
  if (after === undefined) return { past, present, future, gesture: null }
  return { past: [...past, present], present: after, future: future.slice(1), gesture: null }
}
