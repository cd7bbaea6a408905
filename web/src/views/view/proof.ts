// What a recording says of its own truth: how many rows were recomputed, and the largest disagreement.
import { scientific, t } from '../../lib/i18n.svelte'
import type { Provenance, Site } from '../../lib/payload'

/** The kernel by its name, or in words where the model computes its softmax itself. */
export function kernelIn(provenance: Provenance): string {
  return provenance.kernel
    .split(', ')
    .map((name) => (name === 'own' ? t('view.facts.own') : name))
    .join(', ')
}

export function proofOf(site: Site, provenance: Provenance): string {
  const error = site.max_error ?? provenance.max_error
  if (error === null || !provenance.rows_checked) return t('view.proof.none')
  return t('view.proof.checked', { rows: provenance.rows_checked, error: scientific(error) })
}
