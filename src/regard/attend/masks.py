"""Masks as rules that combine: who may attend to whom. True = may attend.

    >>> from regard import masks
    >>> print(masks.window(2, 0) | masks.global_tokens(1))
    (window(left=2, right=0) | global_tokens(n=1))
    ■ ■ ■ ■ ■ ■ ■ ■
    ■ ■ · · · · · ·
    ■ ■ ■ · · · · ·
    ■ ■ ■ ■ · · · ·
    ■ · ■ ■ ■ · · ·
    ■ · · ■ ■ ■ · ·
    ■ · · · ■ ■ ■ ·
    ■ · · · · ■ ■ ■

Every rule can be evaluated on any rectangle (`tile`), shows itself (`print`, `draw`) and can be stored
(`state`, `from_state`). Rules combine with `&` (both), `|` (either) and `~` (not).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from regard.attend.mask import Lengths, Mask, from_state
from regard.attend.mask_blocks import BigBird, BlockMask, Blocks, LocalBlocks
from regard.attend.mask_rules import (
    Causal,
    Dense,
    Documents,
    GlobalTokens,
    KeyMask,
    Padding,
    Prefix,
    Strided,
    Window,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Bool, Int

__all__ = [
    "BlockMask",
    "Lengths",
    "Mask",
    "bigbird",
    "blocks",
    "causal",
    "dense",
    "documents",
    "from_state",
    "global_tokens",
    "padding",
    "prefix",
    "strided",
    "window",
]


def causal() -> Mask:
    """The past and the own position. With fewer queries than keys the last query lies on the last key."""
    return Causal()


def window(left: int | None, right: int | None) -> Mask:
    """`left` keys before and `right` keys after the own position, which is always seen; None: no limit."""
    return Window(left, right)


def prefix(n: int | Sequence[int] | Int[Tensor, " b"]) -> Mask:
    """The first n keys, n per item if need be. `causal() | prefix(n)` is that of a prefix language model."""
    return Prefix(n if isinstance(n, int | Tensor) else torch.as_tensor(n))


def global_tokens(n: int) -> Mask:
    """The first n tokens see all tokens and are seen by all."""
    return GlobalTokens(n)


def strided(stride: int, local: int | None = None) -> Mask:
    """Every stride-th key, and the `local` nearest on either side (as many as the stride, if not given)."""
    return Strided(stride, stride if local is None else local)


def padding(lengths: Sequence[int] | Int[Tensor, " b"] | Bool[Tensor, "b k"], *, side: str = "right") -> Mask:
    """The keys that are no padding: the number of them per item, or a boolean mask of shape (batch, keys).

    `side` says where the padding is when numbers are given.
    """
    given = torch.as_tensor(lengths)
    return KeyMask(given) if given.dtype == torch.bool else Padding(given, side)


def documents(ids: Sequence[int] | Int[Tensor, "*b k"]) -> Mask:
    """Only keys of the query's own document; ids are per position, (keys,) or (batch, keys)."""
    return Documents(torch.as_tensor(ids))


def blocks(layout: Bool[Tensor, "*bh r c"] | None = None, *, size: int) -> Mask:
    """Any square layout of blocks of `size` positions; without a layout every block sees itself."""
    return LocalBlocks(size) if layout is None else Blocks(layout, size)


def bigbird(
    size: int = 64, *, window: int = 3, global_blocks: int = 2, random_blocks: int = 3, seed: int = 0
) -> Mask:
    """BigBird's pattern in blocks of `size`: a window, global blocks first, random blocks in each row."""
    return BigBird(size, window, global_blocks, random_blocks, seed)


def dense(tensor: Bool[Tensor, "*bh q k"]) -> Mask:
    """A boolean matrix as a rule: (queries, keys) or (batch, heads, queries, keys)."""
    return Dense(tensor)
