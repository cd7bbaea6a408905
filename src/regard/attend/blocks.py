"""Any block mask, by gathering: every block of queries is given the blocks of keys that it sees.

    query block r  ×  [key block c : block_mask[r, c]]       one product of (size, d) and (count · size, d)

Items and heads are laid out as one row of blocks. Blocks of queries that read the same keys are one task;
tasks that see equally many blocks are done together, a few at a time, so that what was gathered is still in
the cache when it is used. Gradients of keys are scattered back the same way. Work is proportional to the
blocks that are seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from regard.attend import kernel

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

CHUNK = 1 << 19  # numbers in the keys that are gathered at once
QUERIES = 1024  # that are done with one set of keys


@dataclass(frozen=True)
class Tasks:
    """Tasks of equal size: in each, r blocks of queries read the same blocks of keys.

    Indices count over items and heads too.
    """

    rows: Int[Tensor, "tasks r"]
    cols: Int[Tensor, "tasks count"]
    bias: Float[Tensor, "tasks 1 queries keys"] | None

    def queries(self, x: Float[Tensor, "blocks size *d"]) -> Float[Tensor, "tasks 1 queries *d"]:
        """The blocks of queries of each task, one below the other."""
        picked = x.index_select(0, self.rows.flatten())
        return picked.reshape(len(self.rows), 1, -1, *x.shape[2:])

    def keys(self, x: Float[Tensor, "blocks size d"]) -> Float[Tensor, "tasks 1 keys d"]:
        """The blocks of keys of each task, one below the other."""
        return x.index_select(0, self.cols.flatten()).reshape(len(self.cols), 1, -1, x.shape[2])

    def put(self, x: Float[Tensor, "blocks size *d"], found: Float[Tensor, "tasks 1 queries *d"]) -> None:
        """What was found for the queries, to its place: every block of queries is in one task only."""
        x.index_copy_(0, self.rows.flatten(), found.reshape(-1, *x.shape[1:]))

    def add_to_keys(self, x: Float[Tensor, "blocks size d"], more: Float[Tensor, "tasks 1 keys d"]) -> None:
        """x += more, where a block of keys may be in many tasks."""
        x.index_add_(0, self.cols.flatten(), more.reshape(-1, *x.shape[1:]))


@dataclass(frozen=True)
class Pattern:
    """Which block of `size` queries sees which block of `size` keys; with causality only the past in it."""

    block_mask: Bool[Tensor, "b h r c"]
    size: int
    causal: bool

    def attend(
        self,
        query: Float[Tensor, "b h q d"],
        key: Float[Tensor, "b g k d"],
        value: Float[Tensor, "b g k d"],
        key_mask: Bool[Tensor, "b k"] | None,
        scale: float,
    ) -> tuple[Float[Tensor, "b h q d"], Float[Tensor, "b h q"]]:
        """Output and lse."""
        q, k, v = (self._cut(x) for x in (query, key, value))  # (b · heads · blocks, size, d)
        output = torch.zeros_like(q)
        lse = q.new_full(q.shape[:2], -torch.inf)
        for tasks in self._tasks(query, key, key_mask):
            found = kernel.forward(tasks.queries(q), tasks.keys(k), tasks.keys(v), tasks.bias, scale)
            tasks.put(output, found[0])
            tasks.put(lse, found[1])
        return self._join(output, query), self._join(lse[..., None], query)[..., 0]

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
        """Gradients of query, key and value."""
        q, k, v, do, out = (self._cut(x) for x in (query, key, value, grad_output, output))
        row_lse = self._cut(lse[..., None])[..., 0]
        d_lse = None if grad_lse is None else self._cut(grad_lse[..., None])[..., 0]
        dq, dk, dv = (do.new_zeros(x.shape) for x in (q, k, v))
        for tasks in self._tasks(query, key, key_mask):
            grads = kernel.backward(
                tasks.queries(do),
                None if d_lse is None else tasks.queries(d_lse),
                tasks.queries(q),
                tasks.keys(k),
                tasks.keys(v),
                tasks.queries(out),
                tasks.queries(row_lse),
                tasks.bias,
                scale,
            )
            tasks.put(dq, grads[0])
            tasks.add_to_keys(dk, grads[1])
            tasks.add_to_keys(dv, grads[2])
        return self._join(dq, query), self._join(dk, key), self._join(dv, value)

    def _cut(self, x: Float[Tensor, "b h n d"]) -> Float[Tensor, "blocks size d"]:
        """Blocks of all items and heads in a row; the last of each is filled up with zeros."""
        b, h, n, d = x.shape
        x = torch.nn.functional.pad(x, (0, 0, 0, -n % self.size)) if n % self.size else x
        return x.reshape(b * h * -(-n // self.size), self.size, d)

    def _join(self, x: Float[Tensor, "blocks size d"], like: Tensor) -> Float[Tensor, "b h n d"]:
        b, h, n, _ = like.shape
        padded = n + -n % self.size
        return x.reshape(b, h, padded, x.shape[2])[:, :, :n].contiguous()

    def _tasks(self, query: Tensor, key: Tensor, key_mask: Tensor | None) -> Iterator[Tasks]:
        (batch, heads, queries, channels), (kv_heads, keys) = query.shape, key.shape[1:3]
        if query.numel() == 0 or keys == 0:
            return
        rows, cols = -(-queries // self.size), -(-keys // self.size)
        seen = self.block_mask.expand(batch, heads, rows, cols)
        if self.causal:  # a block whose first key lies behind the last query of the row is not worth a visit
            last = torch.arange(1, rows + 1, device=seen.device).mul(self.size).clamp(max=queries) - 1
            first = torch.arange(cols, device=seen.device) * self.size
            seen = seen & (first <= last[:, None] + keys - queries)
        item, head, _, col = seen.nonzero(as_tuple=True)  # in the order of the rows
        col = (item * kv_heads + head // (heads // kv_heads)) * cols + col
        for group in self._alike(seen.sum(dim=-1).flatten().tolist(), col.tolist()):
            step = max(1, CHUNK // (len(group[0][1]) * self.size * channels))
            for at in range(0, len(group), step):
                chosen = group[at : at + step]
                indices = (torch.tensor(x, device=query.device) for x in zip(*chosen, strict=True))
                row, column = indices
                yield Tasks(row, column, self._bias(row, column, query, key, key_mask))

    def _alike(self, counts: list[int], columns: list[int]) -> Iterator[list[tuple[list[int], list[int]]]]:
        """Pairs (blocks of queries, blocks of keys they all read), in groups of equal lengths.

        Block of queries i reads the next counts[i] of the columns.
        """
        readers: dict[tuple[int, ...], list[int]] = {}
        start = 0
        for row, count in enumerate(counts):
            if count:
                readers.setdefault(tuple(columns[start : start + count]), []).append(row)
            start += count
        most = max(1, QUERIES // self.size)
        groups: dict[tuple[int, int], list[tuple[list[int], list[int]]]] = {}
        for cols, rows in readers.items():
            for at in range(0, len(rows), most):
                part = rows[at : at + most]
                groups.setdefault((len(part), len(cols)), []).append((part, list(cols)))
        yield from groups.values()

    def _bias(
        self, rows: Tensor, cols: Tensor, query: Tensor, key: Tensor, key_mask: Tensor | None
    ) -> Float[Tensor, "tasks 1 queries keys"] | None:
        """−∞ on padding, behind the last key, and with causality on the future; None if all is allowed."""
        heads, queries, keys = query.shape[1], query.shape[2], key.shape[2]
        if not self.causal and key_mask is None and keys % self.size == 0:
            return None
        within = torch.arange(self.size, device=rows.device)
        position = cols % -(-keys // self.size) * self.size  # of the first key in each block
        position = (position[..., None] + within).flatten(1)[:, None, None]  # (tasks, 1, 1, keys)
        blocks = -(-queries // self.size)
        row = ((rows % blocks * self.size)[..., None] + within).flatten(1)[
            :, None, :, None
        ]  # (tasks, 1, queries, 1)
        allowed = (position < keys) & (row >= 0)
        if key_mask is not None:
            item = rows[:, :1, None, None] // (heads * blocks)
            allowed = allowed & key_mask[item, position.clamp(max=keys - 1)]
        if self.causal:
            allowed = allowed & (position <= row + keys - queries)
        return kernel.as_bias(allowed, query.dtype)
