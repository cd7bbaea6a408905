// One pointer drags, two pinch, none pressed points, a press without a drag taps.

export interface Hands {
  point(x: number, y: number): void
  pan(x: number, y: number): void
  pinch(factor: number, x: number, y: number): void
  tap(x: number, y: number): void
}

const SLACK = 4

export class Gestures {
  private readonly pressed = new Map<number, [number, number]>()
  private dragged = false

  constructor(private readonly hands: Hands) {}

  /** Whether a pointer is pressed. */
  get held(): boolean {
    return this.pressed.size > 0
  }

  down(event: PointerEvent, x: number, y: number): void {
    if (event.button > 0) return
    if (this.pressed.size === 0) this.dragged = false
    this.pressed.set(event.pointerId, [x, y])
    const element = event.currentTarget as HTMLElement
    element.setPointerCapture(event.pointerId)
  }

  move(event: PointerEvent, x: number, y: number): void {
    const before = this.pressed.get(event.pointerId)
    if (!before) {
      if (event.pointerType !== 'touch') this.hands.point(x, y)
      return
    }
    if (this.pressed.size === 2) {
      const other = [...this.pressed].find(([id]) => id !== event.pointerId)![1]
      const apart = (at: [number, number]) => Math.max(1, Math.hypot(at[0] - other[0], at[1] - other[1]))
      this.hands.pan((x - before[0]) / 2, (y - before[1]) / 2)
      this.hands.pinch(apart([x, y]) / apart(before), (x + other[0]) / 2, (y + other[1]) / 2)
      this.dragged = true
    } else if (this.dragged || Math.hypot(x - before[0], y - before[1]) > SLACK) {
      this.dragged = true
      this.hands.pan(x - before[0], y - before[1])
    } else return // a tremor is no drag
    this.pressed.set(event.pointerId, [x, y])
  }

  up(event: PointerEvent, x: number, y: number): void {
    if (!this.pressed.delete(event.pointerId)) return
    if (!this.dragged && this.pressed.size === 0) this.hands.tap(x, y)
  }

  cancel(event: PointerEvent): void {
    this.pressed.delete(event.pointerId)
    this.dragged = true
  }
}
