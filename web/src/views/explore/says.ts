// Sentences with live numbers that several parts of the page say.
import { number, percent, t } from '../../lib/i18n.svelte'

const RIGHT_TO_LEFT =
  /\p{Script=Hebrew}|\p{Script=Arabic}|\p{Script=Syriac}|\p{Script=Thaana}|\p{Script=Nko}/u

/** A word as it may stand within a sentence: one written from right to left turns nothing around it. */
export const isolated = (word: string): string => (RIGHT_TO_LEFT.test(word) ? `\u2068${word}\u2069` : word)

/** The words with the place of those that stand more than once: le₁ chat … le₆. */
export const names = (words: readonly string[]): string[] =>
  words.map((word, i) =>
    words.indexOf(word) === words.lastIndexOf(word)
      ? isolated(word)
      : isolated(word) + [...String(i + 1)].map((digit) => '₀₁₂₃₄₅₆₇₈₉'[Number(digit)]).join(''),
  )

export { percent }

/** The places of the largest weights, largest first. */
export const ranked = (weights: readonly number[]): number[] =>
  weights.map((_, i) => i).sort((a, b) => weights[b]! - weights[a]! || a - b)

const SAME = 1e-9

/** The best answers, at most `most`, as far as they answer at all. Equal weights are named together or not at all: the
 *  first of two equal words is no better than the second. */
export function answering(weights: readonly number[], most: number): number[] {
  const order = ranked(weights).filter((j, rank) => weights[j]! >= (rank === 0 ? 0 : 0.05))
  const next = weights[order[most]!] ?? -1
  const above = order.slice(0, most).filter((j) => weights[j]! > next + SAME)
  return above.length ? above : order.filter((j) => weights[j]! > next - SAME)
}

/** Whether all that may answer, and more than one may, have one weight. */
function alike(weights: readonly number[]): boolean {
  const heard = weights.filter((weight) => weight > 0)
  return heard.length > 1 && Math.max(...heard) - Math.min(...heard) < SAME
}

/** "chat asks: noir 58 %, chat 24 %": who answers, or that all answer alike. */
export function whoAnswers(
  word: string,
  words: readonly string[],
  weights: readonly number[],
  most = 3,
): string {
  const named = names(words)
  const best = answering(weights, most)
  const count = weights.filter((weight) => weight > 0).length
  const answers =
    alike(weights) && count > most
      ? t('explore.alike', { count, share: percent(Math.max(...weights)) })
      : best.map((j) => `${named[j]} ${percent(weights[j]!)}`).join(t('explore.comma'))
  return t('explore.asks', { word, answers })
}

export const coordinates = (point: readonly [number, number]): string =>
  `(${number(point[0])}${t('explore.semicolon')}${number(point[1])})`.replaceAll(' ', '\u00a0')
