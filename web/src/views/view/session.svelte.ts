// The one object behind the view: the recording, what is chosen, what is pointed at. Components read it and call its
// methods; it keeps the address in step, so that a link or the back button brings the same picture back.
import type { LinesPicture, MatrixPicture } from '../../draw/picture'
import { headStyle } from '../../lib/colours'
import { readFragment, writeFragment } from '../../lib/fragment'
import { Layers } from '../../lib/layers'
import { startThreshold } from '../../lib/lines'
import { headNumbers, type Header, type Sequence, type Site, type SiteWeights } from '../../lib/payload'
import type { Source } from '../../lib/source'
import { t } from '../../lib/i18n.svelte'
import { parseState, START, stateFragment, type ViewState } from '../../lib/state'
import { forbiddenBy } from '../../lib/matrix'
import { label } from '../../lib/text'
import { talkative } from '../../lib/summary'
import { isDark } from '../../lib/theme.svelte'
import { weightsOf } from '../../lib/summary'
import { isPair, segmentOf, shownTokens, type Side, type Token } from '../../lib/tokens'
import { Long } from './long.svelte'

export class Session {
  readonly source: Source
  readonly header: Header
  private readonly layers: Layers
  private readonly initial: ViewState

  /** Index of the site in the header. */
  site = $state(0)
  chosen = $state.raw<ViewState>(START)
  weights = $state.raw<SiteWeights | null>(null)
  /** In place of `weights`, what is known of a site that is too large to be sent whole. */
  long = $state.raw<Long | null>(null)
  /** The site that `weights` belong to: while another one loads, the old picture stays. */
  private shownSite = $state(0)
  failure = $state.raw<unknown>(null)
  loading = $state(false)
  /** A token under the pointer or the keyboard, and a cell of the matrix, as positions in the sequences. */
  pointed = $state.raw<Token | null>(null)
  cell = $state.raw<{ query: number; key: number } | null>(null)
  /** Rows in sight in the columns of tokens, [from, to): a long text scrolls. */
  sight = $state.raw<{ queries: [number, number]; keys: [number, number] }>({
    queries: [0, 0],
    keys: [0, 0],
  })
  /** Asks the columns of tokens to scroll to a token. */
  reveal: ((token: Token) => void) | null = null
  /** Asks the map to show a token. */
  onMap: ((token: Token) => void) | null = null
  /** Where the panels drew what, for the export of exactly this picture. */
  readonly picture: { lines: LinesPicture | null; matrix: MatrixPicture | null } = {
    lines: null,
    matrix: null,
  }
  /** What a screen reader says next. */
  said = $state('')

  constructor(source: Source) {
    this.source = source
    this.header = source.header
    this.layers = new Layers(source)
    this.initial = parseState(readFragment())
    this.adopt(this.initial)
  }

  kinds = $derived.by(() => [...new Set(this.header.sites.map((site) => site.kind))])
  current: Site = $derived.by(() => this.header.sites[this.shownSite]!)
  /** Sites of the kind in view, with their place in the header. */
  siblings = $derived.by(() => {
    const kind = this.header.sites[this.site]!.kind
    return this.header.sites.map((site, index) => ({ site, index })).filter((s) => s.site.kind === kind)
  })
  queryTokens: Sequence = $derived.by(() => this.header.sequences[this.current.queries]!)
  private ownKeys: Sequence = $derived.by(() => this.header.sequences[this.current.keys]!)
  /** The keys; a learned sink is the last of them. */
  keyTokens: Sequence = $derived.by(() => {
    const { tokens, special, segments, ...rest } = this.ownKeys
    if (this.sink === null) return this.ownKeys
    return {
      ...rest,
      tokens: [...tokens, t('view.sink')],
      special: [...special, false],
      segments: [...segments, -1],
    }
  })
  /** The place of the learned sink among the keys. */
  sink = $derived.by(() => (this.current.sinks && !this.current.tiled ? this.ownKeys.tokens.length : null))
  pairs = $derived.by(() => !this.long && isPair(this.queryTokens) && isPair(this.keyTokens))
  pair = $derived.by(() => (this.pairs ? this.chosen.pair : 'all'))
  // Of their own, so that choosing another layer does not redraw the picture of the old one.
  private special = $derived.by(() => this.chosen.special || this.long !== null)
  private chosenHeads = $derived.by(() => this.chosen.heads)
  queries = $derived.by(() => shownTokens(this.queryTokens, segmentOf(this.pair, 'query'), this.special))
  keys = $derived.by(() => shownTokens(this.keyTokens, segmentOf(this.pair, 'key'), this.special))
  /** The heads that there are, by the model's numbers; a head has its colour also where others were not kept. */
  allHeads = $derived.by(() => headNumbers(this.current))
  private headCount = $derived.by(() => this.current.all_heads ?? this.current.heads)
  heads = $derived.by(() => this.chosenHeads?.filter((head) => this.allHeads.includes(head)) ?? this.allHeads)
  styles = $derived.by(() =>
    Array.from({ length: this.headCount }, (_, head) => headStyle(head, this.headCount, isDark())),
  )
  /** The head of the matrix. */
  head = $derived.by(() => {
    const wanted = this.chosen.head
    if (wanted !== null && this.allHeads.includes(wanted)) return wanted
    if (this.heads.length && this.heads.length < this.current.heads) return this.heads[0]!
    if (!this.weights) return this.allHeads[0]!
    const plain = (sequence: Sequence) => shownTokens(sequence, null, false)
    return talkative(this.weights, plain(this.queryTokens), plain(this.keyTokens))
  })
  /** Weights below this draw no line. */
  private wantedMin = $derived.by(() => this.chosen.min)
  min = $derived.by(() => {
    if (this.wantedMin !== null) return this.wantedMin
    if (this.long) return this.long.min(this.focus, this.sight.queries)
    return this.weights ? startThreshold(this.weights, this.queries, this.keys) : 0
  })
  locked = $derived.by(() => this.inSight(this.chosen.token))
  /** The token whose lines alone are shown: the locked one, else the cell's, else the one pointed at. */
  focus: Token | null = $derived.by(() => {
    if (this.locked) return this.locked
    if (this.cell) return { side: 'query', index: this.cell.query }
    return this.inSight(this.pointed)
  })

  private inSight(token: Token | null): Token | null {
    return token && (token.side === 'query' ? this.queries : this.keys).includes(token.index) ? token : null
  }

  tokensOf(side: Side): Sequence {
    return side === 'query' ? this.queryTokens : this.keyTokens
  }

  textOf(token: Token): string {
    return this.tokensOf(token.side).tokens[token.index]!
  }

  /** Whether the mask of the attention in view forbids `key` to `query`. */
  forbidden = $derived.by(() => {
    const { sink } = this
    const rule = forbiddenBy(this.current.causal, this.queryTokens.tokens.length, this.ownKeys.tokens.length)
    return (query: number, key: number) => key !== sink && rule(query, key)
  })

  /** Whether a weight was kept: where only the largest were, 0 stands for the others. */
  known(weight: number): boolean {
    return this.current.kept === undefined || weight > 0
  }

  /** Whether the weight of a cell of the matrix was kept; what a sink takes always is. */
  isKnown(query: number, key: number): boolean {
    return key === this.sink || !this.weights || this.known(this.weights.at(this.head, query, key))
  }

  /** The tokens in sight on the other side that the mask lets `token` read, or be read by. */
  readable(token: Token): number[] {
    return token.side === 'query'
      ? this.keys.filter((key) => !this.forbidden(token.index, key))
      : this.queries.filter((query) => !this.forbidden(query, token.index))
  }

  /** The numbers beside the tokens of `side`: their weights with the token in focus. */
  numbers(side: Side): Map<number, number> | null {
    const { focus, weights, long } = this
    if (!focus || focus.side === side) return null
    const heads = this.cell ? [this.head] : this.heads
    if (long) {
      const found = long.numbers(focus, heads)
      return found && new Map([...found].filter(([, weight]) => this.known(weight)))
    }
    if (!weights) return null
    const others = this.readable(focus)
    const values = weightsOf(weights, heads, focus, others)
    const known = others.map((index, at) => [index, values[at]!] as const).filter(([, w]) => this.known(w))
    return new Map(known)
  }

  /** The token of a column that stands out: of the cell that is pointed at, else the one in focus. */
  markedOf(side: Side): number | null {
    if (this.cell) return this.cell[side]
    return this.focus?.side === side ? this.focus.index : null
  }

  /** A token for a sentence: a text that occurs more than once gets its position, as in “the (7)”. */
  nameOf(side: Side, index: number): string {
    const { tokens } = this.tokensOf(side)
    const word = tokens[index]!.trim()
    const twin = tokens.some((token, at) => at !== index && token.trim() === word)
    const text = label(word || tokens[index]!)
    return twin ? `${text} (${index})` : text
  }

  /** Load the weights of the chosen site; the previous picture stays until they are there. */
  async load(): Promise<void> {
    const wanted = this.site
    this.loading = true
    this.failure = null
    if (this.header.sites[wanted]!.tiled) {
      this.shownSite = wanted
      this.weights = null
      this.long?.close()
      this.long = new Long(this.source, wanted, this.header.sites[wanted]!.heads)
      this.loading = false
      return
    }
    try {
      const weights = await this.layers.get(wanted)
      if (wanted !== this.site) return
      this.shownSite = wanted
      this.long?.close()
      this.long = null
      this.weights = weights
      this.prepareNeighbours(wanted)
    } catch (error) {
      if (wanted === this.site) this.failure = error
    } finally {
      if (wanted === this.site) this.loading = false
    }
  }

  /** Decode the layers before and after in a quiet moment, so that stepping through them is immediate. */
  private prepareNeighbours(index: number): void {
    const near = this.siblings.filter(
      (s) => s.index !== index && Math.abs(s.index - index) <= 1 && !s.site.tiled,
    )
    const later = window.requestIdleCallback ?? ((work: () => void) => setTimeout(work, 200))
    later(() => near.forEach((s) => void this.layers.get(s.index).catch(() => undefined)))
  }

  /** Take over a state, from the address or from before a new recording. */
  adopt(state: ViewState): void {
    this.chosen = state
    this.cell = null
    const { sites } = this.header
    const kinds = sites.map((site) => site.kind)
    const kind = state.kind !== null && kinds.includes(state.kind) ? state.kind : kinds[0]!
    const ofKind = sites.map((site, index) => ({ site, index })).filter((s) => s.site.kind === kind)
    const same = ofKind.filter((s) => s.site.layer === state.layer)
    this.site = (same[state.nth] ?? same[0] ?? ofKind[0]!).index
    if (!this.weights) this.shownSite = this.site
    void this.load()
  }

  /** Read the address again (back button, edited link). */
  adoptAddress(): void {
    this.adopt(parseState(readFragment()))
  }

  private change(changes: Partial<ViewState>, step: boolean, keepCell = false): void {
    this.chosen = { ...this.chosen, ...changes }
    if (!keepCell) this.cell = null
    writeFragment(stateFragment(this.chosen), step)
  }

  chooseSite(index: number): void {
    if (index === this.site) return
    const site = this.header.sites[index]!
    const twins = this.header.sites.filter((s) => s.kind === site.kind && s.layer === site.layer)
    this.site = index
    const kind = this.kinds.length > 1 ? site.kind : null
    this.change({ kind, layer: site.layer, nth: twins.indexOf(site) }, true)
    void this.load()
  }

  chooseKind(kind: string): void {
    const layer = this.header.sites[this.site]!.layer
    const sites = this.header.sites
      .map((site, index) => ({ site, index }))
      .filter((s) => s.site.kind === kind)
    const found = sites.find((s) => s.site.layer === layer) ?? sites[0]
    if (found) this.chooseSite(found.index)
  }

  /** Show or hide one head. */
  toggleHead(head: number): void {
    const shown = this.heads.includes(head) ? this.heads.filter((h) => h !== head) : [...this.heads, head]
    shown.sort((a, b) => a - b)
    const keep = shown.includes(head) ? head : shown.includes(this.head) ? this.head : (shown[0] ?? head)
    this.change({ heads: shown.length === this.current.heads ? null : shown, head: keep }, false)
  }

  /** Show only this head. */
  isolate(head: number): void {
    this.change({ heads: [head], head }, true)
  }

  showHeads(heads: number[] | null): void {
    this.change({ heads, head: this.head }, true)
  }

  chooseMatrixHead(head: number): void {
    const heads = this.heads.length === 1 ? [head] : this.chosen.heads
    this.change({ head, heads }, false)
  }

  choosePair(pair: ViewState['pair']): void {
    this.change({ pair }, true)
  }

  showSpecials(special: boolean): void {
    this.change({ special }, true)
  }

  setMin(min: number): void {
    this.change({ min }, false)
  }

  /** Remember what the map shows. */
  showMap(map: ViewState['map']): void {
    this.change({ map }, false, true)
  }

  choosePool(pool: ViewState['pool']): void {
    this.change({ pool }, true)
  }

  /** Keep a token in focus and bring it into sight. */
  goTo(token: Token): void {
    this.change({ token }, true)
    this.reveal?.(token)
    this.onMap?.(token)
  }

  lock(token: Token): void {
    const same = this.locked?.side === token.side && this.locked.index === token.index
    this.change({ token: same ? null : token }, true)
  }

  release(): void {
    this.pointed = null
    this.cell = null
    if (this.chosen.token) this.change({ token: null }, true)
  }
}
