// Normal random numbers from a seed, the same in every browser and in Python: mulberry32, then Box and Muller.

/** Uniform numbers in (0, 1). */
export function uniforms(seed: number): () => number {
  let state = seed >>> 0
  return () => {
    state = (state + 0x6d2b79f5) >>> 0
    let x = Math.imul(state ^ (state >>> 15), state | 1)
    x ^= x + Math.imul(x ^ (x >>> 7), x | 61)
    return (((x ^ (x >>> 14)) >>> 0) + 0.5) / 2 ** 32
  }
}

/** `count` numbers of mean 0 and variance 1. */
export function normals(seed: number, count: number): Float64Array {
  const next = uniforms(seed)
  const out = new Float64Array(count)
  for (let i = 0; i < count; i += 2) {
    const radius = Math.sqrt(-2 * Math.log(next()))
    const angle = 2 * Math.PI * next()
    out[i] = radius * Math.cos(angle)
    if (i + 1 < count) out[i + 1] = radius * Math.sin(angle)
  }
  return out
}
