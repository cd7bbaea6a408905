"""Mask rules of blocks: which block of queries may attend to which block of keys.

    allowed[p, j] = layout[p // size, j // size]

A layout has (n / size)² entries, so it can be built whole where the mask can not. BigBird's layout (Zaheer et
al. 2020, "Big Bird: Transformers for Longer Sequences") is a window of blocks, a few global ones and a few
random ones.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from regard.attend.mask import Lengths, Mask, PositionMask, of_heads
from regard.attend.mask_rules import _refuse_counts, _refuse_dtype
from regard.errors import InvalidArgument

if TYPE_CHECKING:
    from jaxtyping import Bool, Int


class BlockMask(PositionMask):
    """A rule that is constant on blocks of `size` queries and `size` keys."""

    size: int

    @abstractmethod
    def layout(
        self, lengths: Lengths, device: torch.device | str | None = None
    ) -> Bool[Tensor, "*bh query_blocks key_blocks"]:
        """Which block of queries may attend to which block of keys."""

    def allowed(
        self, query: Int[Tensor, "rows 1"], key: Int[Tensor, " cols"], lengths: Lengths
    ) -> Bool[Tensor, "*bh rows cols"]:
        layout = self.layout(lengths, key.device)
        row = query.clamp(min=0) // self.size
        return layout[..., row, key // self.size] & (query >= 0)


@dataclass(frozen=True, eq=False, repr=False)
class LocalBlocks(BlockMask, rule="local_blocks"):
    """p // size = j // size: every block sees itself."""

    size: int

    def __post_init__(self) -> None:
        _refuse_size(self.size)

    def layout(self, lengths: Lengths, device: torch.device | str | None = None) -> Bool[Tensor, "r c"]:
        return torch.eye(-(-lengths[1] // self.size), dtype=torch.bool, device=device)


@dataclass(frozen=True, eq=False, repr=False)
class Blocks(BlockMask, rule="blocks"):
    """tensor[p // size, j // size]: any layout, one for all, one per head, or one per item and head."""

    tensor: Bool[Tensor, "*bh r c"]
    size: int

    def __post_init__(self) -> None:
        _refuse_size(self.size)
        _refuse_dtype("block layout", self.tensor)
        if self.tensor.ndim not in (2, 3, 4) or self.tensor.shape[-2] != self.tensor.shape[-1]:
            raise InvalidArgument(
                "block layout must be square, (blocks, blocks), with heads or batch and heads in front; "
                f"got {tuple(self.tensor.shape)}."
            )

    def layout(self, lengths: Lengths, device: torch.device | str | None = None) -> Bool[Tensor, "*bh r c"]:
        needed = -(-lengths[1] // self.size)
        if self.tensor.shape[-1] < needed:
            raise InvalidArgument(
                f"block layout must cover {lengths[1]} positions with {needed} blocks of {self.size}; "
                f"got {self.tensor.shape[-1]} blocks."
            )
        return self.tensor if device is None else self.tensor.to(device)

    def natural_lengths(self) -> Lengths | None:
        return self.tensor.shape[-1] * self.size, self.tensor.shape[-1] * self.size

    def of_heads(self, heads: Sequence[int]) -> Mask:
        tensor = of_heads(self.tensor, heads)
        return self if tensor is self.tensor else Blocks(tensor, self.size)


@dataclass(frozen=True, eq=False, repr=False)
class BigBird(BlockMask, rule="bigbird"):
    """A window of blocks, global blocks at the start, and random blocks that seed and length determine."""

    size: int
    window: int
    global_blocks: int
    random_blocks: int
    seed: int

    def __post_init__(self) -> None:
        _refuse_size(self.size)
        for name in ("window", "global_blocks", "random_blocks", "seed"):
            _refuse_counts(name, getattr(self, name))
        if self.window % 2 == 0:
            raise InvalidArgument(
                f"window must be an odd number of blocks, the own one in the middle; got {self.window}."
            )

    def layout(self, lengths: Lengths, device: torch.device | str | None = None) -> Bool[Tensor, "r c"]:
        blocks = -(-lengths[1] // self.size)
        row, column = torch.arange(blocks)[:, None], torch.arange(blocks)
        seen = (
            ((row - column).abs() <= self.window // 2)
            | (row < self.global_blocks)
            | (column < self.global_blocks)
        )
        # Every row draws its random blocks among those that it does not see yet.
        drawn = torch.rand(blocks, blocks, generator=torch.Generator().manual_seed(self.seed))
        drawn = drawn.masked_fill(seen, -1.0)
        chosen = drawn.topk(min(self.random_blocks, blocks), dim=-1)
        extra = torch.zeros_like(seen).scatter(-1, chosen.indices, chosen.values >= 0)
        return (seen | extra).to(device)


def _refuse_size(size: object) -> None:
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise InvalidArgument(f"block size must be a number of positions ≥ 1; got {size!r}.")
