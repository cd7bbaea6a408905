// Random numbers that are the same on every machine for the same seed: an experiment can be shown again.
import { uniforms } from '../explore/random'

/** One normal number after the other, mean 0 and variance 1 (Box and Muller 1958). */
export function normal(seed: number): () => number {
  const draw = uniforms(seed)
  let spare: number | null = null
  return () => {
    if (spare !== null) {
      const kept = spare
      spare = null
      return kept
    }
    const radius = Math.sqrt(-2 * Math.log(draw()))
    const angle = 2 * Math.PI * draw()
    spare = radius * Math.sin(angle)
    return radius * Math.cos(angle)
  }
}

/** 0 … n−1 in a random order (Fisher and Yates). */
export function shuffled(n: number, seed: number): number[] {
  const draw = uniforms(seed)
  const order = Array.from({ length: n }, (_, i) => i)
  for (let i = n - 1; i > 0; i--) {
    const j = Math.floor(draw() * (i + 1))
    ;[order[i], order[j]] = [order[j]!, order[i]!]
  }
  return order
}
