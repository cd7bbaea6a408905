// What a recording says of its own truth: how many rows were recomputed, and the largest disagreement.
import { scientific, t } from '../../lib/i18n.svelte'
import type { Provenance, Site } from '../../lib/payload'

export function proofOf(site: Site, provenance: Provenance): string {
  const error = site.max_error ?? provenance.max_error
  if (error === null || !provenance.rows_checked) return t('view.proof.none')
  return t('view.proof.checked', { rows: provenance.rows_checked, error: scientific(error) })
}
