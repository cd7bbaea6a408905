// The words of the interface, in French and English. Components call t('view.title'); a change of language redraws them.
import en from '../i18n/en.json'
import fr from '../i18n/fr.json'
import { readFragment } from './fragment'

export type Language = 'en' | 'fr'
type Words = { [key: string]: string | Words }
const catalogues: Record<Language, Words> = { en, fr }

let current = $state<Language>(preferred())

/** The language asked for in the link (#lang=fr or ?lang=fr), else that of a French browser, else English. */
function preferred(): Language {
  if (typeof document === 'undefined') return 'en'
  const asked = new URLSearchParams(location.search).get('lang') ?? readFragment().get('lang')
  if (asked === 'fr' || asked === 'en') return asked
  return navigator.language?.toLowerCase().startsWith('fr') ? 'fr' : 'en'
}

/** Take the language from the address again, after the back button for instance. */
export function adoptLanguage(): void {
  setLanguage(preferred())
}

export function language(): Language {
  return current
}

export function setLanguage(next: Language): void {
  current = next
  if (typeof document !== 'undefined') document.documentElement.lang = next
}

/** The text of `key` in the current language, with {name} replaced by params.name. An unknown key is shown as itself. */
export function t(key: string, params: Record<string, string | number> = {}): string {
  let node: string | Words | undefined = catalogues[current]
  for (const part of key.split('.')) node = typeof node === 'object' ? node[part] : undefined
  if (typeof node !== 'string') return key
  return node.replace(/\{(\w+)\}/g, (whole, name: string) => (name in params ? String(params[name]) : whole))
}

/** A number as people of the current language write it: 0.58 or 0,58; below zero with a true minus, and no −0.00. */
export function number(value: number, digits = 2): string {
  return formatter(String(digits), { minimumFractionDigits: digits, maximumFractionDigits: digits })
    .format(value)
    .replace(/^-(?=[0.,]*$)/, '')
    .replace('-', '−')
}

// Kept, because making a formatter costs more than using it a hundred times.
const formatters = new Map<string, Intl.NumberFormat>()

function formatter(kind: string, options: Intl.NumberFormatOptions): Intl.NumberFormat {
  const known = formatters.get(current + kind)
  if (known) return known
  const made = new Intl.NumberFormat(current, options)
  formatters.set(current + kind, made)
  return made
}

const CERTAIN = 1 - 1e-6 // what a sum of float32 weights may lack of 1

/** A weight as people write it: two decimals, a third where two would say 0.00 or 1.00; never 0 or 1 for what is neither. */
export function weight(value: number): string {
  if (value > 0 && value < 0.0005) return `<${number(0.001, 3)}`
  if (value >= 0.9995 && value < CERTAIN) return `>${number(0.999, 3)}`
  return number(value, (value > 0 && value < 0.01) || (value >= 0.995 && value < CERTAIN) ? 3 : 2)
}

/** A moment as people of the current language write it, in their own time zone; what is none is left as it is. */
export function moment(iso: string): string {
  const date = new Date(iso)
  if (Number.isNaN(date.getTime())) return iso
  return new Intl.DateTimeFormat(current === 'en' ? undefined : current, {
    dateStyle: 'long',
    timeStyle: 'short',
  }).format(date)
}

/** A sentence that another program wrote, with the spaces that French sets before its signs. */
export function typeset(sentence: string): string {
  if (current !== 'fr') return sentence
  return sentence
    .replace(/ (?=[;!?](?!\S))/g, '\u202f')
    .replace(/ (?=[:»%](?![\p{L}\d]))|(?<=«) /gu, '\u00a0')
}

/** A weight where very small ones count: four decimals, and powers of ten below 0.001. */
export function fine(value: number): string {
  if (value === 0 || value >= 0.1) return weight(value)
  return value >= 0.001 ? number(value, 4) : scientific(value)
}

/** A share as people write it: 61 % (with the space of French typography in French); never 0 or 100 for what is neither. */
export function percent(share: number): string {
  const { format } = formatter('percent', { style: 'percent', maximumFractionDigits: 0 })
  if (share > 0 && share < 0.005) return `<${format(0.01)}`
  return share >= 0.995 && share < CERTAIN ? `>${format(0.99)}` : format(share)
}

/** A very small number in powers of ten: 3 × 10⁻⁷. */
export function scientific(value: number): string {
  if (value === 0) return '0'
  const exponent = Math.floor(Math.log10(Math.abs(value)))
  const raised = [...String(exponent)].map((c) => (c === '-' ? '⁻' : '⁰¹²³⁴⁵⁶⁷⁸⁹'[Number(c)])).join('')
  return `${number(value / 10 ** exponent, 1)}\u00a0×\u00a010${raised}`
}
