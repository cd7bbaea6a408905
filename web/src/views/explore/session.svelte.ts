// What a reader does with the explorer: one state, its history, and the numbers that follow from it.
import { entropy } from '../../lib/attention'
import { decode, encode } from '../../lib/explore/codec'
import { compute, unprojected } from '../../lib/explore/compute'
import { begin, redo, settle, step, undo, type History } from '../../lib/explore/history'
import { LONGEST, exampleState, moveVector, translated, type Kind, type State } from '../../lib/explore/state'
import { length, scale, turn, within, type Point } from '../../lib/explore/plane'
import { isolated, names } from './says'
import { readFragment, writeFragment } from '../../lib/fragment'
import { language, type Language } from '../../lib/i18n.svelte'

export class Session {
  #history: History<State> = $state.raw(begin(exampleState('en')))
  readonly state: State = $derived(this.#history.present)
  readonly result = $derived(compute(this.state))
  /** The head that the panels show. */
  readonly shown = $derived(this.result.heads[this.state.head]!)
  readonly weights: number[] = $derived(this.shown.weights[this.state.chosen]!)
  readonly query: Point = $derived(this.shown.queries[this.state.chosen]!)
  readonly output: Point = $derived(this.shown.outputs[this.state.chosen]!)
  readonly entropy: number = $derived(Math.max(0, entropy(this.weights)))
  /** The words as panels write them: those that stand twice with their place. */
  readonly names: readonly string[] = $derived(names(this.state.words))
  readonly word: string = $derived(isolated(this.state.words[this.state.chosen]!))
  readonly canUndo: boolean = $derived(this.#history.past.length > 0)
  readonly canRedo: boolean = $derived(this.#history.future.length > 0)

  /** Start from what the address says. */
  constructor() {
    this.#history = begin(decode(readFragment(), language()))
  }

  /** The address has changed: one step, which can be undone. */
  follow(): void {
    this.become(decode(readFragment(), language()))
  }

  /** Write the state into the address. */
  write(): void {
    writeFragment(encode(this.state, language()))
  }

  /** One step of the reader; steps with the same `gesture` in a row are undone together. */
  set(change: Partial<State>, gesture: string | null = null): void {
    this.become({ ...this.state, ...change }, gesture)
  }

  become(next: State, gesture: string | null = null): void {
    this.#history = step(this.#history, next, gesture)
  }

  settle(): void {
    this.#history = settle(this.#history)
  }

  undo(): void {
    this.#history = undo(this.#history)
    this.speak(language())
  }

  redo(): void {
    this.#history = redo(this.#history)
    this.speak(language())
  }

  reset(): void {
    this.become(exampleState(language()))
  }

  /** The given sentence follows the language of the page; that is no step of the reader's. */
  speak(to: Language): void {
    const next = translated(this.state, to)
    if (next !== this.state) this.#history = { ...this.#history, present: next }
  }

  choose(place: number): void {
    if (place !== this.state.chosen) this.set({ chosen: place }, 'choose')
  }

  /** Put a vector where the reader dragged it, as the shown head sees it. */
  move(kind: Kind, place: number, to: Point, gesture: string): void {
    const set = unprojected(this.state, this.state.head, kind, place, within(to, LONGEST))
    this.become(moveVector(this.state, kind, place, set), gesture)
  }

  turnQuery(angle: number): void {
    this.move('query', this.state.chosen, turn(this.query, angle), `turn ${this.state.chosen}`)
  }

  lengthenQuery(by: number): void {
    const long = length(this.query)
    const next = Math.min(LONGEST, Math.max(0.1, long + by))
    const to: Point = long < 1e-9 ? [next, 0] : scale(this.query, next / long)
    this.move('query', this.state.chosen, to, `lengthen ${this.state.chosen}`)
  }

  /** Arrow keys on the query or on its word; says whether the key meant something. */
  queryKey(event: KeyboardEvent): boolean {
    if (event.ctrlKey || event.metaKey || event.altKey) return false
    const fine = event.shiftKey ? 0.2 : 1
    const angle = (fine * 3 * Math.PI) / 180
    if (event.key === 'ArrowLeft') this.turnQuery(angle)
    else if (event.key === 'ArrowRight') this.turnQuery(-angle)
    else if (event.key === 'ArrowUp') this.lengthenQuery(0.1 * fine)
    else if (event.key === 'ArrowDown') this.lengthenQuery(-0.1 * fine)
    else return false
    event.preventDefault()
    return true
  }
}
