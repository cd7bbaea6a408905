/** How many of `count` things to put in a row that has room for `fit`, so that all rows are as long as one another. */
export function evenly(count: number, fit: number): number {
  const rows = Math.ceil(count / Math.max(1, fit))
  return Math.ceil(count / Math.max(1, rows))
}
