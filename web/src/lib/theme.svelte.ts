// Light, dark, or as the system says. The choice is an attribute of <html>, which the style sheet reads; isDark() is
// reactive, so that what is drawn on a canvas follows. Paper is always light.
import { readFragment } from './fragment'

export type Theme = 'light' | 'dark' | 'system'

const inPage = typeof document !== 'undefined'
const system = inPage ? matchMedia('(prefers-color-scheme: dark)') : null
let chosen = $state<Theme>('system')
let systemIsDark = $state(system?.matches ?? false)
system?.addEventListener('change', () => (systemIsDark = system.matches))
const paper = inPage ? matchMedia('print') : null
let printing = $state(paper?.matches ?? false)
paper?.addEventListener('change', () => (printing = paper.matches))
if (inPage) adoptTheme()

export function theme(): Theme {
  return chosen
}

export function setTheme(next: Theme): void {
  chosen = next
  if (next === 'system') delete document.documentElement.dataset.theme
  else document.documentElement.dataset.theme = next
}

export function isDark(): boolean {
  return !printing && (chosen === 'system' ? systemIsDark : chosen === 'dark')
}

/** Take the theme from the address (#theme=dark). */
export function adoptTheme(): void {
  const asked = readFragment().get('theme')
  setTheme(asked === 'light' || asked === 'dark' ? asked : 'system')
}
