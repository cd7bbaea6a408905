// What went wrong, in the reader's language and in one sentence that says what to do.
import { t, typeset } from '../../lib/i18n.svelte'
import { PayloadError } from '../../lib/payload'
import { Refused } from '../../lib/source'

export function explain(error: unknown): string {
  if (error instanceof PayloadError) return t(`view.failed.${error.reason}`)
  if (error instanceof Refused) return typeset(error.message)
  if (location.protocol === 'file:') return t('view.failed.nothing')
  return t('view.failed.unreachable')
}
