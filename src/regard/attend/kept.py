"""The largest weights of each row, in place of all of them.

    of row i:  positions p_1 … p_t and weights w_i,p_1 ≥ … ≥ w_i,p_t;   the others: unknown, each ≤ w_i,p_t

Found tile by tile (top.py), so that n × n numbers are never held; kept in 8 bytes a weight. A cell that is
not kept reads as 0: whoever shows it says so. The row's log-sum-exp stays, from which the share of a
learned sink follows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from regard.attend.tiles import Scores, strips
from regard.attend.top import largest

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

_UNKNOWN = -1e4  # a logit whose exponential is 0, and which no mask gives: not kept, but not forbidden


@dataclass(frozen=True)
class Largest:
    """The largest weights of each row, of all items and heads, in no order that matters."""

    positions: Int[Tensor, "b h q t"]  # int32, distinct in each row
    weights: Float[Tensor, "b h q t"]
    left_out: float  # the largest share that the weights which are not kept have of a row

    @property
    def count(self) -> int:
        """Weights that are kept of each row."""
        return self.positions.shape[-1]


def largest_of(
    scores: Scores, count: int
) -> tuple[Int[Tensor, "h q t"], Float[Tensor, "h q t"], Float[Tensor, "h q"], Float[Tensor, "h q"]]:
    """(positions, weights, share of the others, log-sum-exp) of the `count` largest weights of each row."""
    queries, keys = scores.lengths
    everything, found = slice(0, keys), []
    for rows in strips(slice(0, queries), keys, heads=scores.heads):
        lse = scores.log_sum_exp(rows)
        positions, weights = largest(scores, rows, everything, lse, count)
        others = torch.zeros_like(lse)
        if count < keys:
            taken = weights.sum(-1) if scores.sinks is None else weights.sum(-1) + scores.sink(lse, rows)
            others = (1 - taken).clamp_(min=0).masked_fill_(lse == -torch.inf, 0.0)
        found.append((positions.to(torch.int32), weights, others, lse))
    positions, weights, others, lse = (torch.cat(parts, 1) for parts in zip(*found, strict=True))
    return positions, weights, others, lse


@dataclass(frozen=True)
class LargestScores(Scores):
    """Logits of which only those of the largest weights of each row are known; queries have no channels."""

    positions: Int[Tensor, "h q t"] | None = None
    kept: Float[Tensor, "h q t"] | None = None
    lse: Float[Tensor, "h q"] | None = None

    def log_sum_exp(self, rows: slice) -> Float[Tensor, "h r"]:
        """As it was when all weights were known."""
        return self._parts()[2][:, rows].to(self.dtype)

    def weights(self, rows: slice, cols: slice, lse: Float[Tensor, "h r"]) -> Float[Tensor, "h r c"]:
        """The kept weights on a rectangle, and 0 for those that are not kept."""
        positions, kept, _ = self._parts()
        where = positions[:, rows].long() - cols.start
        inside = (where >= 0) & (where < cols.stop - cols.start)
        values = torch.where(inside, kept[:, rows].to(self.dtype), 0.0)
        tile = values.new_zeros(*values.shape[:2], cols.stop - cols.start)
        if tile.numel():
            tile.scatter_add_(-1, where.clamp(0, tile.shape[-1] - 1), values)
        return tile

    def unknown(self, rows: slice, cols: slice) -> Bool[Tensor, "h r c"]:
        """Which cells of a rectangle were not kept; where a row's least kept weight is 0, its others are."""
        _, kept, lse = self._parts()
        unkept = self.weights(rows, cols, lse[:, rows]) == 0
        if kept.shape[-1] == self.lengths[1]:
            return torch.zeros_like(unkept)
        return unkept & (kept[:, rows].amin(-1, keepdim=True) > 0)

    def _masked(self, rows: slice, cols: slice, allowed: Tensor | None) -> Float[Tensor, "h r c"]:
        lse = self.log_sum_exp(rows)
        weights = self.weights(rows, cols, lse)
        logits = torch.where(weights > 0, weights.log() + lse[..., None], _UNKNOWN)
        return logits if allowed is None else logits.masked_fill_(~allowed, -torch.inf)

    def _parts(self) -> tuple[Tensor, Tensor, Tensor]:
        if self.positions is None or self.kept is None or self.lse is None:
            raise TypeError("positions, kept and lse are needed.")
        return self.positions, self.kept, self.lse
