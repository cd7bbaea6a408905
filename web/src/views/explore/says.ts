// Sentences with live numbers that several parts of the page say.
import { number, percent, t } from '../../lib/i18n.svelte'

/** The words with the place of those that stand more than once: le₁ chat … le₆. */
export const names = (words: readonly string[]): string[] =>
  words.map((word, i) =>
    words.indexOf(word) === words.lastIndexOf(word)
      ? word
      : word + [...String(i + 1)].map((digit) => '₀₁₂₃₄₅₆₇₈₉'[Number(digit)]).join(''),
  )

/** A number with a true minus sign. */
export const signed = (value: number, digits = 2): string =>
  number(value, digits)
    .replace(/^-(?=[0.,]*$)/, '')
    .replace('-', '−')

export { percent }

/** The places of the largest weights, largest first. */
export const ranked = (weights: readonly number[]): number[] =>
  weights.map((_, i) => i).sort((a, b) => weights[b]! - weights[a]! || a - b)

/** "chat asks: noir 58 %, chat 24 %": who answers, as far as they answer at all. */
export function whoAnswers(
  word: string,
  words: readonly string[],
  weights: readonly number[],
  most = 3,
): string {
  const best = ranked(weights)
    .filter((j, rank) => weights[j]! >= (rank === 0 ? 0 : 0.05))
    .slice(0, most)
  return t('explore.asks', {
    word,
    answers: best.map((j) => `${names(words)[j]} ${percent(weights[j]!)}`).join(t('explore.comma')),
  })
}

export const coordinates = (point: readonly [number, number]): string =>
  `(${signed(point[0])}${t('explore.semicolon')}${signed(point[1])})`.replaceAll(' ', '\u00a0')
