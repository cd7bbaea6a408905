// The temperature on a logarithmic slider with both limits: place 0 is T = 0, place 100 is T = ∞, between them
// T = 10^((place − 50) / 24.5), from 0.01 to 100, with T = 1 in the middle.

export const PLACES = 100

export function temperatureAt(place: number): number {
  if (place <= 0) return 0
  if (place >= PLACES) return Infinity
  return Number((10 ** ((place - 50) / 24.5)).toPrecision(2))
}

export function placeOf(temperature: number): number {
  if (temperature <= 0) return 0
  if (temperature === Infinity) return PLACES
  return Math.min(PLACES - 1, Math.max(1, Math.round(50 + 24.5 * Math.log10(temperature))))
}
