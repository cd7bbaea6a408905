// The state of a page lives in the fragment of its address: #layer=2&head=5&lang=fr. Each part of a page changes only
// its own keys, so that a link keeps what the other parts wrote.

/** `fragment` (without #) with the keys of `changes` set, or removed where the value is null. Commas stay readable. */
export function mergeFragment(fragment: string, changes: Record<string, string | null>): string {
  const params = new URLSearchParams(fragment)
  for (const [key, value] of Object.entries(changes)) {
    if (value === null) params.delete(key)
    else params.set(key, value)
  }
  return params.toString().replaceAll('%2C', ',')
}

/** What the address says; where it says nothing, what the page was saved with (data-view of <html>). */
export function readFragment(): URLSearchParams {
  const fragment = location.hash.slice(1)
  return new URLSearchParams(fragment || (document.documentElement.dataset.view ?? ''))
}

/** Write keys into the address. `push` makes a step that the back button returns from. */
export function writeFragment(changes: Record<string, string | null>, push = false): void {
  const before = location.hash.slice(1)
  const next = mergeFragment(readFragment().toString(), changes)
  if (next === before) return
  try {
    history[push ? 'pushState' : 'replaceState'](null, '', `#${next}`)
  } catch {
    // A page inside a sandboxed frame has no history: the view works, only its link is not kept.
  }
}
