// Finding words in a long text: across the pieces that the tokens are, without regard to case.

/** The text that tokens make, and where each of them begins in it. */
export interface Joined {
  text: string
  starts: number[]
}

/** Join pieces as they were: by themselves where they carry their spaces, else as words, with ## continuing one. */
export function join(tokens: string[]): Joined {
  const spaced = tokens.some((token) => /^\s\S/.test(token))
  const starts: number[] = []
  const parts: string[] = []
  let length = 0
  tokens.forEach((token, at) => {
    const continues = !spaced && token.startsWith('##') && token.length > 2
    const part = (spaced || continues || at === 0 ? '' : ' ') + (continues ? token.slice(2) : token)
    starts.push(length + (part.length > 1 && part.startsWith(' ') ? 1 : 0))
    parts.push(part)
    length += part.length
  })
  return { text: parts.join('').toLowerCase(), starts }
}

/** The tokens in which `wanted` begins, in order; “#123” is the token at position 123. */
export function find(joined: Joined, wanted: string): number[] {
  const position = /^#\s*(\d{1,7})$/.exec(wanted.trim())
  if (position) return Number(position[1]) < joined.starts.length ? [Number(position[1])] : []
  const text = wanted.toLowerCase().trim().replace(/\s+/g, ' ')
  const found: number[] = []
  if (!text) return found
  for (let at = joined.text.indexOf(text); at >= 0; at = joined.text.indexOf(text, at + 1)) {
    const token = tokenAt(joined.starts, at)
    if (found.at(-1) !== token) found.push(token)
  }
  return found
}

/** The last token that begins at or before a place in the text. */
function tokenAt(starts: number[], place: number): number {
  let [low, high] = [0, starts.length - 1]
  while (low < high) {
    const middle = (low + high + 1) >> 1
    if (starts[middle]! <= place) low = middle
    else high = middle - 1
  }
  return low
}
