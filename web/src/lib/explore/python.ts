// "Copy as Python": the lines of regard that give exactly the numbers on screen. Tests run them and compare.
//
// After they ran, weights is (heads, n, n), outputs (heads, n, 2) and result (n, 2).
import { MAX_HEADS, vectorsOf, type Kind, type State } from './state'

/** The comments, in the reader's language; each names what the line under it does. */
export interface Comments {
  sinusoidal: string
  projections: string
  rotary: string
  attention: string
  mixing: string
  residual: string
  print: string
  experiment: string
}

const KINDS: readonly Kind[] = ['query', 'key', 'value']

const float = (x: number): string =>
  x === Infinity ? 'math.inf' : Number.isInteger(x) ? x.toFixed(1) : String(x)
const tuple = (items: readonly string[]): string => `[${items.join(', ')}]`

function table(state: State, kind: Kind): string {
  const rows = state.words.map((_, i) => tuple(vectorsOf(state, i)[kind].map(float)))
  return `${kind} = torch.tensor(${tuple(rows)}, dtype=torch.float64)`
}

/** Whether any head turns anything: head 1 of the example does not. */
const turning = (state: State): boolean =>
  state.heads.slice(0, state.headCount).some((head) => KINDS.some((kind) => head[kind] !== 0))

export function pythonCode(state: State, say: Comments): string {
  const heads = state.heads.slice(0, Math.min(state.headCount, MAX_HEADS))
  const n = state.words.length
  const turned = turning(state)
  const lines: string[] = []
  const imports = turned || state.temperature === Infinity ? ['import math', ''] : []
  lines.push(...imports, 'import torch', '', 'import regard', '')
  lines.push(`words = ${tuple(state.words.map((word) => JSON.stringify(word)))}`)
  for (const kind of KINDS) lines.push(table(state, kind))
  if (state.residual) lines.push('inputs = value')

  if (state.positions === 'sinusoidal') {
    lines.push('', `# ${say.sinusoidal}`)
    lines.push(
      `position = ${float(state.size)} * regard.positions.sinusoidal(torch.arange(${n}), 2, dtype=torch.float64)`,
    )
    lines.push('query, key = query + position, key + position')
  }

  lines.push('', `# ${say.projections}`)
  if (turned) {
    lines.push(
      'def turned(vectors, degrees):',
      '    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))',
      '    return vectors @ torch.tensor([[cos, sin], [-sin, cos]], dtype=torch.float64)',
      '',
    )
    for (const kind of KINDS) {
      const angles = tuple(heads.map((head) => String(head[kind])))
      lines.push(`${kind} = torch.stack([turned(${kind}, angle) for angle in ${angles}])[None]`)
    }
  } else lines.push('query, key, value = query[None, None], key[None, None], value[None, None]')

  if (state.positions === 'rotary') {
    lines.push('', `# ${say.rotary}`)
    lines.push(`angle = ${float(state.turn)} * torch.arange(${n}, dtype=torch.float64)[:, None]`)
    lines.push('query, key = (regard.positions.rotate(x, angle.cos(), angle.sin()) for x in (query, key))')
  }

  lines.push('', `# ${say.attention}`)
  const options = [
    state.causal ? 'causal=True' : '',
    `scale=${state.scaled ? '2**-0.5' : '1.0'}`,
    state.temperature === 1 ? '' : `temperature=${float(state.temperature)}`,
    'return_weights=True',
  ].filter(Boolean)
  lines.push(`attended = regard.attention(query, key, value, ${options.join(', ')})`)
  lines.push('weights, outputs = attended.weights[0], attended.output[0]')

  lines.push('', `# ${say.mixing}`)
  if (heads.length === 1) lines.push('result = outputs[0]')
  else {
    const mix = tuple(heads.map((head) => float(head.mix)))
    lines.push(
      `output_projection = torch.cat([w / ${heads.length} * torch.eye(2, dtype=torch.float64) for w in ${mix}])`,
      'result = outputs.transpose(0, 1).flatten(1) @ output_projection',
    )
  }
  if (state.residual) lines.push(`result = inputs + result  # ${say.residual}`)

  lines.push('', `# ${say.print}`)
  lines.push(`for word, weight in zip(words, weights[${state.head}, ${state.chosen}].tolist()):`)
  lines.push('    print(f"{word:>14} {weight:.4f}")')
  lines.push(`print(result[${state.chosen}].tolist())`, '')
  return lines.join('\n')
}

/** The experiment on √d_k: the same random numbers, the same two rows. Afterwards unscaled and scaled are (n,). */
export function experimentCode(state: State, say: Comments): string {
  const n = state.words.length
  const [d, seed] = [state.dimension, state.seed]
  return `import math

import torch

import regard


def normals(seed, count):
    # ${say.experiment}
    def uniform():
        nonlocal seed
        seed = (seed + 0x6D2B79F5) % 2**32
        x = (seed ^ seed >> 15) * (seed | 1) % 2**32
        x ^= (x + (x ^ x >> 7) * (x | 61)) % 2**32
        return ((x ^ x >> 14) + 0.5) / 2**32

    numbers = []
    while len(numbers) < count:
        radius, angle = math.sqrt(-2 * math.log(uniform())), 2 * math.pi * uniform()
        numbers += [radius * math.cos(angle), radius * math.sin(angle)]
    return torch.tensor(numbers[:count], dtype=torch.float64)


vectors = normals(${seed}, ${n + 1} * 512).view(1, 1, ${n + 1}, 512)[..., :${d}]
query, key = vectors[:, :, :1], vectors[:, :, 1:]
unscaled = regard.attention(query, key, key, scale=1.0, return_weights=True).weights[0, 0, 0]
scaled = regard.attention(query, key, key, scale=${d}**-0.5, return_weights=True).weights[0, 0, 0]
print(unscaled.tolist())
print(scaled.tolist())
`
}
