// Markdown of a lesson → HTML at build time. Mathematics becomes MathML, which browsers draw themselves: the page
// carries no font and no library for it.
//
//   $x$, $$x$$               mathematics
//   ![sentence](figure:name) a living figure, mounted by the page, with its caption
//   [query](term:query)      a term of the glossary      [Vaswani 2017](source:vaswani2017)
//   [chapter 3](page:03-why-root-d)
//   _word_                   a word of the other language (*word* stays emphasis)
//   ```text               what the Python before it prints
//   > note                   goes into the margin
//   ### text {#id}           a heading that links can name
//
// Links leave here as href="page:slug#id"; the page and the writer of the offline folder turn them into their own.
import katex from 'katex'
import { Marked, type TokenizerAndRendererExtension, type Tokens } from 'marked'

export type Language = 'en' | 'fr'

export interface Rendered {
  meta: Record<string, string>
  html: string
  /** Terms of the glossary in the order in which the text first links them. */
  terms: string[]
  sources: string[]
}

const other = (language: Language): Language => (language === 'fr' ? 'en' : 'fr')
const escape = (text: string) =>
  text.replace(/[&<>"]/g, (c) => ({ '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' })[c]!)

export function mathml(tex: string, displayMode: boolean): string {
  const html = katex.renderToString(tex, {
    output: 'mathml',
    displayMode,
    throwOnError: true,
    strict: 'error',
  })
  // Only the drawing: the TeX source would be carried twice.
  return html
    .replace(/^<span class="katex">|<\/span>$/g, '')
    .replace(/<annotation[\s\S]*?<\/annotation>/g, '')
    .replace(/<\/?semantics>/g, '')
}

/** Front matter (key: value lines between ---) and the Markdown after it. */
export function split(source: string): { meta: Record<string, string>; body: string } {
  const found = /^---\n([\s\S]*?)\n---\n/.exec(source)
  if (!found) throw new Error('A lesson starts with front matter between two lines of ---.')
  const meta = Object.fromEntries(
    found[1]!.split('\n').map((line) => {
      const at = line.indexOf(':')
      return [line.slice(0, at).trim(), line.slice(at + 1).trim()]
    }),
  )
  return { meta, body: source.slice(found[0].length) }
}

/** Python in colours: comments, strings, keywords. */
export function python(code: string): string {
  const parts =
    /(#.*)|("""[\s\S]*?"""|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|\b(import|from|as|def|return|for|in|if|else|with|not|and|or|lambda|None|True|False)\b/g
  let out = ''
  let at = 0
  for (const match of code.matchAll(parts)) {
    const kind = match[1] ? 'remark' : match[2] ? 'string' : 'keyword'
    out += escape(code.slice(at, match.index)) + `<span class="${kind}">${escape(match[0])}</span>`
    at = match.index + match[0].length
  }
  return out + escape(code.slice(at))
}

function mathematics(name: string, level: 'inline' | 'block', rule: RegExp): TokenizerAndRendererExtension {
  return {
    name,
    level,
    // A block begins a line; said more loosely, marked would cut every paragraph at its first dollar.
    start: (src) => (level === 'block' ? src.search(/^\$\$/m) : src.indexOf('$')),
    tokenizer(src) {
      const found = rule.exec(src)
      return found ? { type: name, raw: found[0], tex: found[1]!.trim(), after: found[2] ?? '' } : undefined
    },
    renderer(token) {
      const html = mathml(token.tex as string, level === 'block')
      return level === 'block'
        ? `<div class="formula">${html}</div>\n`
        : token.after
          ? `<span class="whole">${html}${token.after as string}</span>`
          : html
    },
  }
}

export function render(source: string, language: Language): Rendered {
  const { meta, body } = split(source)
  const terms: string[] = []
  const sources: string[] = []
  const foreign = other(language)

  const link = (href: string): string => {
    const [kind, id = ''] = href.split(/:(.*)/s)
    if (kind === 'term') {
      if (!terms.includes(id)) terms.push(id)
      return `page:glossary#${id}`
    }
    if (kind === 'source') {
      if (!sources.includes(id)) sources.push(id)
      return `page:sources#${id}`
    }
    return href
  }

  const marked = new Marked({
    extensions: [
      mathematics('display', 'block', /^\$\$([\s\S]+?)\$\$(?:\n|$)/),
      // The punctuation after a formula stays on its line.
      mathematics('math', 'inline', /^\$((?:\\\$|[^$\n])+?)\$(?!\d)((?:[\u00a0\u202f]?[,.;:!?)])*)/),
    ],
    renderer: {
      em(token: Tokens.Em) {
        const text = this.parser.parseInline(token.tokens)
        return token.raw.startsWith('_') ? `<i lang="${foreign}">${text}</i>` : `<em>${text}</em>`
      },
      link(token: Tokens.Link) {
        const text = this.parser.parseInline(token.tokens)
        const href = link(token.href)
        const kind = token.href.split(':')[0]
        const outside = kind === 'https' ? ' rel="noreferrer"' : ''
        return `<a class="${kind}" href="${escape(href)}"${outside}>${text}</a>`
      },
      paragraph(token: Tokens.Paragraph) {
        const only = token.tokens.length === 1 ? token.tokens[0] : undefined
        if (only?.type === 'image' && String(only.href).startsWith('figure:')) {
          const name = String(only.href).slice('figure:'.length)
          const caption = marked.parseInline(only.text as string) as string
          return `<figure data-figure="${name}"><figcaption>${caption}</figcaption></figure>\n`
        }
        return `<p>${this.parser.parseInline(token.tokens)}</p>\n`
      },
      heading(token: Tokens.Heading) {
        const html = this.parser.parseInline(token.tokens)
        const [, text = html, id] = /^(.*?)\s*\{#([\w-]+)\}$/.exec(html) ?? []
        return `<h${token.depth}${id ? ` id="${id}"` : ''}>${text}</h${token.depth}>\n`
      },
      blockquote(token: Tokens.Blockquote) {
        return `<aside class="margin-note">${this.parser.parse(token.tokens)}</aside>\n`
      },
      code(token: Tokens.Code) {
        const html = token.lang === 'python' ? python(token.text) : escape(token.text)
        const printed = token.lang === 'text' ? ' class="printed"' : ''
        return `<pre tabindex="0"${printed}><code lang="zxx">${html}</code></pre>\n`
      },
      codespan(token: Tokens.Codespan) {
        return `<code lang="zxx">${escape(token.text)}</code>`
      },
    },
  })
  const html = marked.parse(body, { async: false })
  return { meta, html, terms, sources }
}
