// One stop of the Tab key for a whole group of buttons; within it the arrow keys go from one to the next.

/** Where an arrow key leads from `at` among `count` buttons in rows of `columns`, or null for any other key. */
export function arrow(key: string, at: number, count: number, columns = 1): number | null {
  const steps: Record<string, number> = {
    ArrowLeft: -1,
    ArrowRight: 1,
    ArrowUp: -columns,
    ArrowDown: columns,
  }
  if (key === 'Home') return 0
  if (key === 'End') return count - 1
  const step = steps[key]
  if (step === undefined) return null
  const next = at + step
  return next >= 0 && next < count ? next : at
}

/** Follow an arrow key within the group that the event belongs to, and focus what it leads to. */
export function rove(event: KeyboardEvent & { currentTarget: HTMLElement }, columns = 1): void {
  const buttons = [...event.currentTarget.querySelectorAll('button')]
  const at = buttons.indexOf(event.target as HTMLButtonElement)
  const next = at < 0 ? null : arrow(event.key, at, buttons.length, columns)
  if (next === null) return
  event.preventDefault()
  buttons[next]!.focus()
}
