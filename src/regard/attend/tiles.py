"""Weights of any rectangle, log-sum-exp and pooled pictures from queries and keys, tile by tile.

    weights[i, j] = exp(s_ij − lse_i),   s_ij = scale · q_i·k_j (+ bias), capped, −inf where the mask forbids

Nothing here holds n × n numbers: a tile has about `TILE` of them. The largest weight of a block is
found before the exponential (exp is monotone once lse_i is known), so a picture of n × n costs one
matrix product and one pass of maxima:

    max_block exp(s_ij − lse_i) = exp(max_block (s_ij − lse_i))

Why a log-sum-exp per row is all that must be known: Dao et al. 2022, "FlashAttention", section 3.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Float

    from regard.attend.mask import Mask

TILE = 1 << 19
"""Numbers in one tile: 2 MB in float32, so that the passes over it find it in a cache."""

# Few rows and many columns suit the passes of maxima; of several heads, fewer rows still.
_TILE_ROWS = 256
_TILE_COLUMNS = 2048
_STRIP = 1 << 22
_INF = float("inf")


@dataclass(frozen=True)
class Scores:
    """The logits of one item, for one head or all, on any rectangle; in float32 or wider."""

    query: Float[Tensor, "h q d"]
    key: Float[Tensor, "g k d"]
    scale: float
    mask: Mask | None = None
    bias: Tensor | None = None  # (1 or b, 1 or h, 1 or q, 1 or k)
    softcap: float | None = None
    sinks: Tensor | None = None  # logits of a sink for each head, (h,), or for each query too, (h, q)
    item: int = 0  # which item of the batch and ...
    head: int = 0  # ... which head the first one of `query` is, to find them in mask and bias

    @property
    def lengths(self) -> tuple[int, int]:
        """(queries, keys)."""
        return self.query.shape[-2], self.key.shape[-2]

    @property
    def heads(self) -> int:
        """Number of query heads here."""
        return self.query.shape[0]

    @property
    def dtype(self) -> torch.dtype:
        """Number type of everything computed: float64 for float64 queries, else float32."""
        return torch.float64 if self.query.dtype == torch.float64 else torch.float32

    def tile(self, rows: slice, cols: slice) -> Float[Tensor, "h r c"]:
        """The logits of a rectangle, −inf where the mask forbids; slices have start, stop and step 1."""
        return self._masked(rows, cols, self.allowed(rows, cols))

    def tile_unless_empty(self, rows: slice, cols: slice) -> Float[Tensor, "h r c"] | None:
        """The logits of a rectangle, or None when the mask forbids all of it."""
        verdict = self.mask.verdict(rows, cols, self.lengths) if self.mask is not None else True
        if verdict is False:
            return None
        allowed = None if verdict else self.allowed(rows, cols)
        if allowed is None or bool(allowed.all()):
            return self._masked(rows, cols, None)
        return self._masked(rows, cols, allowed) if bool(allowed.any()) else None

    def _masked(self, rows: slice, cols: slice, allowed: Tensor | None) -> Float[Tensor, "h r c"]:
        scores = self._products(rows, cols)
        if self.softcap is not None:
            scores = scores.div_(self.softcap).tanh_().mul_(self.softcap)
        if self.bias is not None:
            scores = scores.add_(self._own(_cut(self.bias, rows, cols)))
        if allowed is not None:
            scores = scores.masked_fill_(~allowed, -_INF)
        return scores

    def allowed(self, rows: slice, cols: slice) -> Tensor | None:
        """Which cells of a rectangle may be attended to, broadcasting to (h, r, c); None when all may."""
        if self.mask is None:
            return None
        return self._own(self.mask.tile(rows, cols, self.lengths, self.query.device))

    def log_sum_exp(self, rows: slice) -> Float[Tensor, "h r"]:
        """log Σ_j exp(s_ij), the sink included; −inf where no key is allowed."""
        lse = self.query.new_full((self.heads, rows.stop - rows.start), -_INF, dtype=self.dtype)
        for top, left, high, wide in _rectangles(lse.shape[1], self.lengths[1], (1, 1), self.heads):
            tile_rows = slice(rows.start + top, rows.start + top + high)
            values = self.tile_unless_empty(tile_rows, slice(left, left + wide))
            if values is not None:  # beyond the diagonal of a causal mask there is nothing to add
                part = lse[:, top : top + high]
                part.copy_(torch.logaddexp(part, _log_sum_exp(values)))
        if self.sinks is not None:
            lse = torch.logaddexp(lse, self.sink_logits(rows).to(lse))
        return lse

    def sink_logits(self, rows: slice) -> Tensor:
        """The logits of the sink for some rows: (h, r), or (h, 1) where it is one for all."""
        if self.sinks is None:
            return self.query.new_full((self.heads, 1), -_INF, dtype=self.dtype)
        return self.sinks[:, None] if self.sinks.ndim == 1 else self.sinks[:, rows]

    def weights(self, rows: slice, cols: slice, lse: Float[Tensor, "h r"]) -> Float[Tensor, "h r c"]:
        """exp(s − lse) on a rectangle; a row with no allowed key is 0."""
        return self.tile(rows, cols).sub_(_subtractable(lse)[:, :, None]).exp_()

    def sink(self, lse: Float[Tensor, "h r"], rows: slice) -> Float[Tensor, "h r"]:
        """What some rows give to the learned sink of each head: exp(sink − lse); 0 where there are none."""
        return torch.zeros_like(lse) if self.sinks is None else (self.sink_logits(rows).to(lse) - lse).exp()

    def _products(self, rows: slice, cols: slice) -> Float[Tensor, "h r c"]:
        """scale · q·k on a rectangle; grouped query heads share one product with their key head."""
        query = self.query[:, rows].to(self.dtype) * self.scale  # (h, r, d)
        key = self.key[:, cols].to(self.dtype)  # (g, c, d)
        heads, r, d = query.shape
        group = heads // key.shape[0]
        scores = torch.matmul(
            query.reshape(key.shape[0], group * r, d), key.transpose(1, 2)
        )  # (g, group · r, c)
        return scores.view(heads, r, key.shape[1])

    def _own(self, tile: Tensor) -> Tensor:
        """Of a tensor that broadcasts to (b, h, …): the part of this item and these heads, (1 or h, …)."""
        tile = tile.reshape((1,) * (4 - tile.ndim) + tuple(tile.shape))
        tile = tile[self.item if tile.shape[0] > 1 else 0]
        return tile[self.head : self.head + self.heads] if tile.shape[0] > 1 else tile


def pooled(
    scores: Scores,
    rows: slice,
    cols: slice,
    lse: Float[Tensor, "h r"],
    size: int,
    reduce: Literal["max", "mean"],
) -> Float[Tensor, "h R C"]:
    """A rectangle of weights in at most size × size cells, each the largest or mean weight of its block.

    A block has ceil(rows / size) × ceil(cols / size) weights, the last ones perhaps fewer. `lse` is
    that of `rows`.
    """
    return in_blocks(scores, rows, cols, lse, block_of(rows, cols, size), reduce)


def block_of(rows: slice, cols: slice, size: int) -> tuple[int, int]:
    """(rows, columns) of the blocks that make at most size × size cells of a rectangle."""
    height, width = rows.stop - rows.start, cols.stop - cols.start
    return max(1, -(-height // size)), max(1, -(-width // size))


def in_blocks(
    scores: Scores,
    rows: slice,
    cols: slice,
    lse: Float[Tensor, "h r"],
    block: tuple[int, int],
    reduce: Literal["max", "mean"],
    forbidden: float = 0.0,
) -> Float[Tensor, "h R C"]:
    """The weights of a rectangle, one number for each block of `block` = (rows, columns) of them.

    A block in which the mask forbids everything is `forbidden`.
    """
    height, width = rows.stop - rows.start, cols.stop - cols.start
    shift = _subtractable(lse)
    shape = (scores.heads, -(-height // block[0]), -(-width // block[1]))
    picture = lse.new_full(shape, forbidden)
    for top, left, high, wide in _rectangles(height, width, block, scores.heads):
        tile_rows = slice(rows.start + top, rows.start + top + high)
        tile_cols = slice(cols.start + left, cols.start + left + wide)
        values = scores.tile_unless_empty(tile_rows, tile_cols)
        if values is None:
            continue  # as beyond the diagonal of a causal mask
        values.sub_(shift[:, top : top + high, None])
        cells = _pool(values, block, reduce, forbidden)
        r, c = top // block[0], left // block[1]
        picture[:, r : r + cells.shape[1], c : c + cells.shape[2]] = cells
    return picture


def strips(rows: slice, width: int, block: int = 1, heads: int = 1) -> Iterator[slice]:
    """Slices of whole blocks that cover `rows`: a few million weights each, at least one row of tiles.

    What takes long is done strip by strip, so that it can tell how far it is and be interrupted between two.
    """
    tile = tile_rows(width, heads, block)
    high = max(1, _STRIP // (tile * heads * max(1, width))) * tile
    for start in range(rows.start, max(rows.start + 1, rows.stop), high):
        yield slice(start, min(start + high, rows.stop))


def tile_rows(width: int, heads: int, block: int = 1) -> int:
    """How many rows a tile of whole blocks has, where there are `width` columns."""
    rows = max(16, min(_TILE_ROWS, TILE // (heads * min(max(1, width), _TILE_COLUMNS))))
    return max(1, rows // block) * block


def _rectangles(
    height: int, width: int, block: tuple[int, int], heads: int
) -> Iterator[tuple[int, int, int, int]]:
    """(top, left, high, wide) of rectangles of whole blocks that cover all, each of about `TILE` numbers."""
    high = tile_rows(width, heads, block[0])
    wide = max(1, TILE // (min(high, max(1, height)) * heads * block[1])) * block[1]
    for top in range(0, height, high):
        for left in range(0, width, wide):
            yield top, left, min(high, height - top), min(wide, width - left)


def _pool(
    values: Float[Tensor, "h r c"],
    block: tuple[int, int],
    reduce: Literal["max", "mean"],
    forbidden: float,
) -> Float[Tensor, "h R C"]:
    """One number a block: rows first (whole lines, which vectorise), then columns of what is left."""
    if reduce == "max":
        largest = _largest(values, block)
        return _marked(largest.exp(), largest, forbidden)
    largest = _largest(values, block) if forbidden else values
    by_rows = _blocks(values.exp_(), 1, block[0], 0.0).sum(2)
    sums = _blocks(by_rows, 2, block[1], 0.0).sum(3)
    high = _counts(values.shape[1], block[0], values.device)
    wide = _counts(values.shape[2], block[1], values.device)
    return _marked(sums / (high[:, None] * wide), largest, forbidden)


def _largest(values: Float[Tensor, "h r c"], block: tuple[int, int]) -> Float[Tensor, "h R C"]:
    """The largest number of each block."""
    by_rows = _blocks(values, 1, block[0], -_INF).amax(2)
    return _blocks(by_rows, 2, block[1], -_INF).amax(3)


def _marked(cells: Tensor, largest: Tensor, forbidden: float) -> Tensor:
    """`cells`, with those of which every logit was −inf set to `forbidden` (0 they are already)."""
    return cells.masked_fill_(largest == -_INF, forbidden) if forbidden else cells


def _blocks(values: Tensor, dim: int, block: int, fill: float) -> Tensor:
    """Axis `dim` as (blocks, block), filled up at the end."""
    lacking = -values.shape[dim] % block
    if lacking:
        shape = list(values.shape)
        shape[dim] = lacking
        values = torch.cat([values, values.new_full(shape, fill)], dim)
    sizes = values.shape
    return values.reshape(*sizes[:dim], sizes[dim] // block, block, *sizes[dim + 1 :])


def _counts(length: int, block: int, device: torch.device) -> Tensor:
    """How many of `length` positions each block has."""
    starts = torch.arange(0, length, block, device=device)
    return (length - starts).clamp(max=block)


def _log_sum_exp(scores: Float[Tensor, "h r c"]) -> Float[Tensor, "h r"]:
    """log Σ exp along the last axis, overwriting `scores`; −inf for a row of −inf, or of no columns at all.

    In place, this takes half the time of torch.logsumexp on a tile.
    """
    if scores.shape[-1] == 0:
        return scores.new_full(scores.shape[:-1], -_INF)
    largest = _subtractable(scores.amax(-1))
    return scores.sub_(largest[..., None]).exp_().sum(-1).log_().add_(largest)


def _subtractable(lse: Tensor) -> Tensor:
    """lse with 0 for −inf: such a row has only logits of −inf, and −inf − 0 is what exp turns into 0."""
    return lse.masked_fill(lse == -_INF, 0.0)


def _cut(tensor: Tensor, rows: slice, cols: slice) -> Tensor:
    """The rectangle of a tensor whose last two axes may be of length 1."""
    if tensor.shape[-2] != 1:
        tensor = tensor[..., rows, :]
    return tensor if tensor.shape[-1] == 1 else tensor[..., cols]
