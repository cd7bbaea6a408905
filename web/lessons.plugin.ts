// Vite plugin: reads the lessons (src/regard/lessons/{fr,en}/*.md) and the newest measured times
// (benchmarks/results/*.json) and puts both into learn.html as one <script type="application/json">.
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { resolve } from 'node:path'
import type { Plugin } from 'vite'
import { render, type Language, type Rendered } from './lessons.render.ts'
import type { Book, Chapter, Measured, Term } from './src/lib/learn/book.ts'

const root = resolve(import.meta.dirname, '..')
const folder = resolve(root, 'src/regard/lessons')
const results = resolve(root, 'benchmarks/results')

/** Glossary headings: id → the word of this language and of the other. */
export function glossary(source: string): Map<string, Term> {
  const found = source.matchAll(/^## (.+?) · _(.+?)_ \{#([\w-]+)\}$/gm)
  return new Map([...found].map(([, here, there, id]) => [id!, { id: id!, here: here!, there: there! }]))
}

const USES = { fr: ['chapitre', 'chapitres'], en: ['chapter', 'chapters'] } as const

/** Under the name of each entry of the glossary or the sources (a heading with an id), the chapters that link it. */
function withUses(
  html: string,
  language: Language,
  users: (id: string) => { slug: string; number: number }[],
): string {
  return html.replace(/^<h2 id="([\w-]+)">.*<\/h2>$/gm, (heading: string, id: string) => {
    const links = users(id).map(({ slug, number }) => `<a class="page" href="page:${slug}">${number}</a>`)
    const name = USES[language][links.length > 1 ? 1 : 0]
    return links.length ? `${heading}\n<p class="uses">${name} ${links.join(', ')}</p>` : heading
  })
}

export function chapters(language: Language): Chapter[] {
  const names = readdirSync(resolve(folder, language)).filter((name) => name.endsWith('.md'))
  const read = (name: string) => readFileSync(resolve(folder, language, name), 'utf8')
  const words = glossary(read('glossary.md'))
  const pages = names.sort().map((name) => {
    const slug = name.slice(0, -'.md'.length)
    const rendered: Rendered = render(read(name), language)
    return { slug, number: Number.parseInt(slug) || 0, rendered }
  })
  const linking = (kind: 'terms' | 'sources') => (id: string) =>
    pages.filter(({ number, rendered }) => number > 0 && rendered[kind].includes(id))
  return pages.map(({ slug, number, rendered: { meta, html, terms } }) => ({
    slug,
    number,
    title: meta.title!,
    idea: meta.idea!,
    terms: number ? terms.map((id) => words.get(id)!) : [],
    html:
      slug === 'glossary' || slug === 'sources'
        ? withUses(html, language, linking(slug === 'glossary' ? 'terms' : 'sources'))
        : html,
  }))
}

interface Result {
  machine: { cpu: string; cores: number; threads: number; torch: string; date: string }
  rows: {
    name?: string
    way?: Measured['series'][number]['way']
    length?: number
    measured: number
    channels?: number
    window?: number
  }[]
}

/** The newest result that says how long each way took at each length; null when none was committed. */
export function measured(): Measured | null {
  if (!existsSync(results)) return null
  const found = readdirSync(results)
    .filter((name) => name.endsWith('.json'))
    .map((name) => JSON.parse(readFileSync(resolve(results, name), 'utf8')) as Result)
    .filter(({ rows }) => rows.some(({ way, length }) => way && length))
    .sort((a, b) => a.machine.date.localeCompare(b.machine.date))
    .at(-1)
  return found ? timesOf(found) : null
}

export function timesOf({ machine, rows }: Result): Measured {
  const timed = rows.filter(({ way, length }) => way && length)
  const ways = [...new Set(timed.map(({ way }) => way!))]
  return {
    date: machine.date,
    cpu: machine.cpu,
    threads: machine.threads,
    torch: machine.torch,
    channels: timed[0]!.channels!,
    window: timed[0]!.window!,
    series: ways.map((way) => {
      const own = timed.filter((row) => row.way === way)
      return { name: own[0]!.name!, way, points: own.map((row) => [row.length!, row.measured / 1000]) }
    }),
  }
}

export function book(): Book {
  return { languages: { fr: chapters('fr'), en: chapters('en') }, measured: measured() }
}

export function lessons(): Plugin {
  return {
    name: 'regard-lessons',
    transformIndexHtml(_html, context) {
      if (!context.filename.endsWith('learn.html')) return
      const data = JSON.stringify(book()).replaceAll('</', '<\\/').replaceAll('<!--', '<\\u0021--')
      return [
        {
          tag: 'script',
          attrs: { type: 'application/json', id: 'regard-lessons' },
          children: data,
          injectTo: 'body',
        },
      ]
    },
    configureServer(server) {
      server.watcher.add(folder)
      server.watcher.on(
        'change',
        (path) => path.startsWith(folder) && server.ws.send({ type: 'full-reload' }),
      )
    },
  }
}
