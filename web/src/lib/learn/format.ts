import { language } from '../i18n.svelte'

/** A share as people of the current language write it: 58% or 58 %. */
export function percent(share: number): string {
  return new Intl.NumberFormat(language(), { style: 'percent', maximumFractionDigits: 0 }).format(share)
}
