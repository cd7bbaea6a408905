"""The window cut into bands: every block of queries with the band of keys that it sees, as views, nothing
copied.

    query   ░░░░▓▓▓▓░░░░░░░░        block i of `rows` queries
    key     ░░▒▒▒▒▒▒▒▒░░░░░░        its band: left + rows + right keys, which moves on by `rows` with each
    block

All inner blocks have the same shape and the same mask, so that one call of the kernel does many of them;
blocks at the ends, whose bands are cut off, come one by one. Global tokens add two strips: their columns,
seen by every row (the two parts of a row are merged by their lse), and their rows, which see every key. Work
and memory are O(n · window).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from regard.attend import kernel

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

CHUNK = 1 << 21  # numbers in the keys of one call: with values and gradients, about what the caches hold
STRIP = 1024  # rows of one call where global tokens are involved


@dataclass(frozen=True)
class Band:
    """Blocks of queries, each with its band of keys: block i has `rows` queries and `cols` keys."""

    row: int  # first query of the first block
    rows: int
    col: int  # first key of the first block
    cols: int
    blocks: int = 1
    masked: bool = True  # whether the window hides part of it

    def queries(self, x: Float[Tensor, "h n d"]) -> Float[Tensor, "blocks h rows d"]:
        stop = self.row + self.blocks * self.rows
        return x[:, self.row : stop].unfold(1, self.rows, self.rows).permute(1, 0, 3, 2)

    def keys(self, x: Float[Tensor, "g n d"]) -> Float[Tensor, "blocks g cols d"]:
        stop = self.col + (self.blocks - 1) * self.rows + self.cols
        return x[:, self.col : stop].unfold(1, self.cols, self.rows).permute(1, 0, 3, 2)

    def rows_of(self, x: Float[Tensor, "h n"]) -> Float[Tensor, "blocks h rows"]:
        return self.queries(x[..., None])[..., 0]

    def add_to_keys(self, x: Float[Tensor, "g n d"], more: Float[Tensor, "blocks g cols d"]) -> None:
        """x += more, slice by slice: neighbouring bands overlap, slices as long as a block do not."""
        step = self.rows if self.blocks > 1 else self.cols
        for start in range(0, self.cols, step):
            cols = min(step, self.cols - start)
            slices = Band(self.row, self.rows, self.col + start, cols, self.blocks)
            slices.keys(x).add_(more[:, :, start : start + cols])


@dataclass(frozen=True)
class Window:
    """What every query sees: keys from p − left to p + right and the first `globals`; p is its position."""

    queries: int
    keys: int
    left: int
    right: int
    globals: int
    causal: bool

    @property
    def offset(self) -> int:
        """Position of the first query: the last query lies on the last key."""
        return self.keys - self.queries

    def bands(self, channels: int) -> Iterator[Band]:
        """Rectangles and bands that together cover each visible pair once."""
        first = min(max(-self.offset, 0), self.queries)  # rows before it have a negative position
        after = min(max(self.globals - self.offset, 0), self.queries) if self.globals else first
        for start, stop in ((0, first), (after, self.queries)):
            if self.globals and not (self.causal and start < first):
                yield from self._strips(start, stop, self.globals)
            yield from self._window(start, stop, channels)
        yield from self._strips(first, after, self.keys)

    def _strips(self, start: int, stop: int, cols: int) -> Iterator[Band]:
        """All of the first `cols` keys for rows start … stop; with causality only up to the own position."""
        for row in range(start, stop, STRIP):
            rows = min(STRIP, stop - row)
            visible = min(cols, row + rows + self.offset) if self.causal else cols
            yield Band(row, rows, 0, visible, masked=self.causal and visible > row + self.offset + 1)

    def _window(self, start: int, stop: int, channels: int) -> Iterator[Band]:
        rows = 64 if self.left + self.right < 1024 else 256
        most = max(1, CHUNK // ((self.left + rows + self.right) * max(channels, 1)))
        row = start
        while row < stop:
            low, high = row + self.offset - self.left, row + self.offset + rows + self.right
            whole = low >= self.globals and high <= self.keys and row + rows <= stop
            if whole:
                blocks = min(most, (stop - row) // rows, 1 + (self.keys - high) // rows)
                yield Band(row, rows, low, high - low, blocks)
                row += blocks * rows
                continue
            count = min(rows, stop - row)
            low, high = max(low, self.globals), min(high - rows + count, self.keys)
            if low < high:
                yield Band(row, count, low, high - low)
            row += count

    def bias(self, band: Band, key_mask: Bool[Tensor, " k"] | None, like: Tensor) -> Tensor | None:
        """0 and −∞ on a band: (1, 1, rows, cols) for all blocks, with padding (blocks, 1, rows, cols)."""
        allowed = None
        if band.masked:
            position = torch.arange(band.row, band.row + band.rows, device=like.device)[:, None] + self.offset
            ahead = torch.arange(band.col, band.col + band.cols, device=like.device) - position
            allowed = ahead <= 0 if self.causal else ahead <= self.right
            if band.col >= self.globals:  # not a row of global tokens
                allowed = allowed & (ahead >= -self.left)
            allowed = allowed[None, None]  # (1, 1, rows, cols)
        if key_mask is not None:
            real = band.keys(key_mask[None, :, None]).transpose(-1, -2)  # (blocks, 1, 1, cols)
            real = real.expand(-1, -1, band.rows, -1)
            allowed = real if allowed is None else real & allowed
        return None if allowed is None else kernel.as_bias(allowed, like.dtype)

    def attend(
        self,
        query: Float[Tensor, "b h q d"],
        key: Float[Tensor, "b g k d"],
        value: Float[Tensor, "b g k d"],
        key_mask: Bool[Tensor, "b k"] | None,
        scale: float,
    ) -> tuple[Float[Tensor, "b h q d"], Float[Tensor, "b h q"]]:
        """Output and lse, band by band."""
        output, lse = kernel.empty_result(query)
        for item, band, bias in self._work(query, key_mask):
            q, k, v = band.queries(query[item]), band.keys(key[item]), band.keys(value[item])
            found = kernel.forward(q, k, v, bias, scale)
            into = band.queries(output[item]), band.rows_of(lse[item])
            if self.globals:
                kernel.merge_into(*into, *found)
            else:
                into[0].copy_(found[0])
                into[1].copy_(found[1])
        return output, lse

    def attend_backward(
        self,
        grad_output: Float[Tensor, "b h q d"],
        grad_lse: Float[Tensor, "b h q"] | None,
        query: Float[Tensor, "b h q d"],
        key: Float[Tensor, "b g k d"],
        value: Float[Tensor, "b g k d"],
        output: Float[Tensor, "b h q d"],
        lse: Float[Tensor, "b h q"],
        key_mask: Bool[Tensor, "b k"] | None,
        scale: float,
    ) -> tuple[Float[Tensor, "b h q d"], Float[Tensor, "b g k d"], Float[Tensor, "b g k d"]]:
        """Gradients of query, key and value, band by band."""
        grads = [kernel.zeros(x, grad_output) for x in (query, key, value)]
        for item, band, bias in self._work(query, key_mask):
            dq, dk, dv = kernel.backward(
                band.queries(grad_output[item]),
                None if grad_lse is None else band.rows_of(grad_lse[item]),
                band.queries(query[item]),
                band.keys(key[item]),
                band.keys(value[item]),
                band.queries(output[item]),
                band.rows_of(lse[item]),
                bias,
                scale,
            )
            band.queries(grads[0][item]).add_(dq)
            band.add_to_keys(grads[1][item], dk)
            band.add_to_keys(grads[2][item], dv)
        return grads[0], grads[1], grads[2]

    def _work(
        self, query: Tensor, key_mask: Tensor | None
    ) -> Iterator[tuple[int, Band, Float[Tensor, "#n 1 rows cols"] | None]]:
        """Every band of every item with its bias."""
        if query.shape[1] == 0:
            return
        for band in self.bands(query.shape[1] * query.shape[3]):
            shared = self.bias(band, None, query) if key_mask is None else None
            for item in range(query.shape[0]):
                yield item, band, shared if key_mask is None else self.bias(band, key_mask[item], query)
