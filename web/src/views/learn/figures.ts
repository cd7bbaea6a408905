// The living figures by the name that a lesson calls them: ![…](figure:ask).
import type { Component } from 'svelte'
import Ask from './Ask.svelte'
import FourSteps from './FourSteps.svelte'
import Heads from './Heads.svelte'
import Kinds from './Kinds.svelte'
import Linear from './Linear.svelte'
import Mask from './Mask.svelte'
import NextWord from './NextWord.svelte'
import Positions from './Positions.svelte'
import Price from './Price.svelte'
import RootD from './RootD.svelte'
import Temperature from './Temperature.svelte'

export const figures: Record<string, Component> = {
  ask: Ask,
  'four-steps': FourSteps,
  'root-d': RootD,
  temperature: Temperature,
  mask: Mask,
  kinds: Kinds,
  heads: Heads,
  positions: Positions,
  price: Price,
  linear: Linear,
  'next-word': NextWord,
}
