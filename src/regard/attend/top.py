"""The k largest weights of each row, tile by tile: never a whole row of weights, however long.

    top_k(row) = top_k( ∪ over tiles of top_k(tile) )

Within a tile only the k groups of columns with the largest maxima can hold them, so of all its columns some
k · 32 are looked at one by one. A tile that the mask forbids is left out; exp is monotone and comes last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from regard.attend.tiles import TILE, Scores

if TYPE_CHECKING:
    from jaxtyping import Float, Int

_GROUP = 32


def largest(
    scores: Scores, rows: slice, cols: slice, lse: Float[Tensor, "h r"], k: int
) -> tuple[Int[Tensor, "h r k"], Float[Tensor, "h r k"]]:
    """(columns counted from `cols.start`, weights) of the k largest of each row, the largest first.

    Fewer than k where there are fewer columns. `lse` is that of `rows`.
    """
    heads, high = scores.heads, rows.stop - rows.start
    best = lse.new_empty(heads, high, 0 if high else min(k, cols.stop - cols.start))
    places = torch.empty(best.shape, dtype=torch.long, device=lse.device)
    wide = max(_GROUP, TILE // (heads * max(1, high)))
    for left in range(cols.start, cols.stop if high else cols.start, wide):
        columns = slice(left, min(left + wide, cols.stop))
        values = scores.tile_unless_empty(rows, columns)
        if values is None and best.shape[-1] >= k:
            continue
        if values is None:  # then forbidden columns of weight 0 fill up what is lacking
            values = scores.tile(rows, columns)
        new, at = _largest(values, k)
        best, order = _largest(torch.cat([best, new], -1), k)
        places = torch.cat([places, at + (left - cols.start)], -1).gather(-1, order)
    shift = lse.masked_fill(lse == -float("inf"), 0.0)  # such a row has only logits of −inf
    return places, (best - shift[:, :, None]).exp()


def _largest(values: Float[Tensor, "h r c"], k: int) -> tuple[Float[Tensor, "h r k"], Int[Tensor, "h r k"]]:
    """torch.topk along the last axis, at most all of it; by groups where there are many columns."""
    columns = values.shape[-1]
    if columns < 4 * k * _GROUP:
        found = values.topk(min(k, columns))
        return found.values, found.indices
    whole = columns - columns % _GROUP
    groups = values[..., :whole].view(*values.shape[:-1], -1, _GROUP)  # (h, r, groups, _GROUP)
    first = groups.amax(-1).topk(k).indices * _GROUP
    inside = torch.arange(_GROUP, device=values.device)
    at = (first[..., None] + inside).flatten(-2)
    rest = torch.arange(whole, columns, device=values.device).expand(*at.shape[:-1], columns - whole)
    at = torch.cat([at, rest], -1)
    found = values.gather(-1, at).topk(k)
    return found.values, at.gather(-1, found.indices)
