// Tokens as a person can see them: nothing invisible, nothing that turns the line around, nothing endless.
// Texts stay data: they only ever reach the page as text nodes, or escaped into an exported SVG.

const LONGEST = 28

/** Invisible characters made visible: ␀ for controls, ␣ for a token of spaces, ‹U+202E› for marks that steer direction. */
export function visible(token: string): string {
  if (token === '') return '∅'
  const text = token.replace(/[\u0000-\u001f\u007f]/g, (c) =>
    c === '\u007f'
      ? '␡'
      : c === '\n'
        ? '⏎'
        : c === '\t'
          ? '⇥'
          : String.fromCharCode(0x2400 + c.charCodeAt(0)),
  )
  const steered = text.replace(
    /[\u0080-\u009f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g,
    (c) => `‹U+${c.charCodeAt(0).toString(16).toUpperCase().padStart(4, '0')}›`,
  )
  return /^\s+$/.test(steered) ? '␣'.repeat(steered.length) : steered
}

/** `token` for a label: visible, and cut with … after `longest` letters (whole letters: an emoji is never split). */
export function label(token: string, longest = LONGEST): string {
  const text = visible(token.length > 40 * longest ? token.slice(0, 40 * longest) : token)
  if (text.length <= longest) return text
  const letters = [...new Intl.Segmenter(undefined, { granularity: 'grapheme' }).segment(text)]
  if (letters.length <= longest) return text
  return (
    letters
      .slice(0, longest - 1)
      .map((letter) => letter.segment)
      .join('') + '…'
  )
}

/** `token` as a label of at most `room` pixels; `measure` gives the width of a text. */
export function fitted(token: string, room: number, measure: (text: string) => number): string {
  let longest = LONGEST
  let text = label(token, longest)
  while (longest > 2 && measure(text) > room) text = label(token, --longest)
  return text
}

/** `text` in the body or an attribute of an XML file. Characters that XML forbids become �. */
export function escapeXml(text: string): string {
  return text
    .replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`)
    .replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]|\p{Surrogate}/gu, '\ufffd')
}

/** A name for a saved file, from what was recorded: "the-quick-brown-fox". */
export function fileStem(text: string): string {
  const words = text
    .normalize('NFKD')
    .toLowerCase()
    .replace(/\p{Mark}/gu, '')
    .match(/[\p{Letter}\p{Number}]+/gu)
  return (words ?? []).join('-').slice(0, 40).replace(/-+$/, '') || 'regard'
}
