// The decoded weights of the sites looked at last. Going back to a layer is instant, and memory stays bounded.
import { decodeChunk, type SiteWeights } from './payload'
import type { Source } from './source'

export class Layers {
  private readonly kept = new Map<number, Promise<SiteWeights>>()

  constructor(
    private readonly source: Source,
    private readonly capacity = 6,
  ) {}

  /** The weights of site `index`. A failed attempt is forgotten, so that asking again tries again. */
  get(index: number): Promise<SiteWeights> {
    const found = this.kept.get(index)
    this.kept.delete(index)
    const weights = found ?? this.decode(index)
    this.kept.set(index, weights)
    if (this.kept.size > this.capacity) this.kept.delete(this.kept.keys().next().value!)
    return weights
  }

  private async decode(index: number): Promise<SiteWeights> {
    try {
      const { header } = this.source
      return await decodeChunk(await this.source.chunk(index), header.sites[index]!, header.sequences)
    } catch (error) {
      this.kept.delete(index)
      throw error
    }
  }
}
