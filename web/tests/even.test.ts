import { expect, test } from 'vitest'
import { evenly } from '../src/lib/even'

test('no row has more than fits, and the last lacks fewer than there are rows', () => {
  for (let count = 1; count <= 60; count++)
    for (let fit = 1; fit <= 40; fit++) {
      const columns = evenly(count, fit)
      const rows = Math.ceil(count / columns)
      expect(columns).toBeLessThanOrEqual(fit)
      expect(rows).toBe(Math.ceil(count / fit))
      expect(columns * rows - count).toBeLessThan(rows)
    }
  expect(evenly(30, 29)).toBe(15)
  expect(evenly(6, 0)).toBe(1)
})
