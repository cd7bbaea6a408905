"""Mask rules of positions (causal, window, prefix, global, strided) and of data (padding, documents, dense).

With p the position of the query and j that of the key, for example

    causal          j ≤ p
    window          p − left ≤ j ≤ p + right
    causal | prefix j ≤ p  or  j < n                (the prefix language model of Raffel et al. 2020)

Strided patterns: Child et al. 2019, "Generating Long Sequences with Sparse Transformers".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from regard.attend.mask import Lengths, Mask, PositionMask, of_heads
from regard.errors import InvalidArgument

if TYPE_CHECKING:
    from jaxtyping import Bool, Int


@dataclass(frozen=True, eq=False, repr=False)
class Causal(PositionMask, rule="causal"):
    """j ≤ p: the past and the own position."""

    def allowed(
        self, query: Int[Tensor, "rows 1"], key: Int[Tensor, " cols"], lengths: Lengths
    ) -> Bool[Tensor, "rows cols"]:
        return key <= query

    def verdict(self, rows: slice, cols: slice, lengths: Lengths) -> bool | None:
        return Window(None, 0).verdict(rows, cols, lengths)


@dataclass(frozen=True, eq=False, repr=False)
class Window(PositionMask, rule="window"):
    """p − left ≤ j ≤ p + right: keys on either side, inclusive; None is without limit."""

    left: int | None
    right: int | None

    def __post_init__(self) -> None:
        for name, side in (("left", self.left), ("right", self.right)):
            if side is not None and (not isinstance(side, int) or isinstance(side, bool) or side < 0):
                raise InvalidArgument(
                    f"window {name} must be a number of keys ≥ 0, or None for no limit; got {side!r}. "
                    "The own position is always visible and not counted."
                )

    def allowed(
        self, query: Int[Tensor, "rows 1"], key: Int[Tensor, " cols"], lengths: Lengths
    ) -> Bool[Tensor, "rows cols"]:
        distance = key - query
        if self.left is None and self.right is None:
            return torch.ones_like(distance, dtype=torch.bool)
        if self.left is None:
            return distance <= self.right  # type: ignore[operator]
        if self.right is None:
            return distance >= -self.left
        return (distance >= -self.left) & (distance <= self.right)

    def verdict(self, rows: slice, cols: slice, lengths: Lengths) -> bool | None:
        ahead = lengths[1] - lengths[0]
        nearest, farthest = cols.start - (rows.stop - 1 + ahead), cols.stop - 1 - (rows.start + ahead)
        left = -math.inf if self.left is None else -self.left
        right = math.inf if self.right is None else self.right
        if left <= nearest and farthest <= right:
            return True
        return False if farthest < left or nearest > right else None


@dataclass(frozen=True, eq=False, repr=False)
class Prefix(PositionMask, rule="prefix"):
    """j < n: the first n keys, for every query. n may differ from item to item."""

    n: int | Int[Tensor, " b"]

    def __post_init__(self) -> None:
        _refuse_counts("prefix n", self.n)

    def allowed(
        self, query: Int[Tensor, "rows 1"], key: Int[Tensor, " cols"], lengths: Lengths
    ) -> Bool[Tensor, "*bh rows cols"]:
        n = self.n.to(key.device)[:, None, None, None] if isinstance(self.n, Tensor) else self.n
        return key < n if isinstance(n, Tensor) else (key < n)[None, :]


@dataclass(frozen=True, eq=False, repr=False)
class GlobalTokens(PositionMask, rule="global_tokens"):
    """p < n or j < n: the first n tokens see every token and are seen by every token."""

    n: int

    def __post_init__(self) -> None:
        _refuse_counts("global_tokens n", self.n)

    def allowed(
        self, query: Int[Tensor, "rows 1"], key: Int[Tensor, " cols"], lengths: Lengths
    ) -> Bool[Tensor, "rows cols"]:
        return (key < self.n) | ((query < self.n) & (query >= 0))


@dataclass(frozen=True, eq=False, repr=False)
class Strided(PositionMask, rule="strided"):
    """|p − j| ≤ local  or  p − j a multiple of the stride."""

    stride: int
    local: int

    def __post_init__(self) -> None:
        if not isinstance(self.stride, int) or isinstance(self.stride, bool) or self.stride < 1:
            raise InvalidArgument(f"stride must be a number of keys ≥ 1; got {self.stride!r}.")
        _refuse_counts("local", self.local)

    def allowed(
        self, query: Int[Tensor, "rows 1"], key: Int[Tensor, " cols"], lengths: Lengths
    ) -> Bool[Tensor, "rows cols"]:
        distance = query - key
        return (distance.abs() <= self.local) | (distance % self.stride == 0)


@dataclass(frozen=True, eq=False, repr=False)
class Padding(PositionMask, rule="padding"):
    """j < lengths[b], or for padding on the left j ≥ keys − lengths[b]: the keys that are no padding."""

    lengths: Int[Tensor, " b"]
    side: str = "right"

    def __post_init__(self) -> None:
        _refuse_counts("padding lengths", self.lengths)
        if self.side not in ("left", "right"):
            raise InvalidArgument(f"side must be 'left' or 'right', where the padding is; got {self.side!r}.")

    def allowed(
        self, query: Int[Tensor, "rows 1"], key: Int[Tensor, " cols"], lengths: Lengths
    ) -> Bool[Tensor, "b 1 1 cols"]:
        count = self.lengths.to(key.device)[:, None, None, None]
        return key < count if self.side == "right" else key >= lengths[1] - count

    def natural_lengths(self) -> Lengths | None:
        longest = max(self.lengths.tolist(), default=0)
        return longest, longest


@dataclass(frozen=True, eq=False, repr=False)
class KeyMask(PositionMask, rule="key_mask"):
    """key_mask[b, j]: the keys that are no padding, given one by one."""

    key_mask: Bool[Tensor, "b k"]

    def __post_init__(self) -> None:
        _refuse_dtype("key mask", self.key_mask)
        if self.key_mask.ndim != 2:
            raise InvalidArgument(
                f"key mask must have the shape (batch, keys); got {tuple(self.key_mask.shape)}."
            )

    def allowed(
        self, query: Int[Tensor, "rows 1"], key: Int[Tensor, " cols"], lengths: Lengths
    ) -> Bool[Tensor, "b 1 1 cols"]:
        _refuse_length("key mask", self.key_mask.shape[-1], lengths[1])
        return self.key_mask.to(key.device)[:, None, None, key]

    def natural_lengths(self) -> Lengths | None:
        return self.key_mask.shape[-1], self.key_mask.shape[-1]


@dataclass(frozen=True, eq=False, repr=False)
class Documents(PositionMask, rule="documents"):
    """ids[p] = ids[j]: texts packed into one sequence do not see each other."""

    ids: Int[Tensor, "*b k"]

    def __post_init__(self) -> None:
        if self.ids.ndim not in (1, 2) or self.ids.is_floating_point() or self.ids.is_complex():
            raise InvalidArgument(
                "document ids must be whole numbers of the shape (keys,) or (batch, keys); "
                f"got {self.ids.dtype} {tuple(self.ids.shape)}."
            )

    def allowed(
        self, query: Int[Tensor, "rows 1"], key: Int[Tensor, " cols"], lengths: Lengths
    ) -> Bool[Tensor, "*bh rows cols"]:
        _refuse_length("document ids", self.ids.shape[-1], lengths[1])
        ids = self.ids.to(key.device)
        ids = ids[:, None] if ids.ndim == 2 else ids  # (b, 1, k): the head axis
        same = ids[..., query.clamp(min=0)] == ids[..., None, key]
        return same & (query >= 0)

    def natural_lengths(self) -> Lengths | None:
        return self.ids.shape[-1], self.ids.shape[-1]


@dataclass(frozen=True, eq=False, repr=False)
class Dense(Mask, rule="dense"):
    """tensor[…, i, j]: a boolean matrix as a rule. Row i is that of query i, whatever its position."""

    tensor: Bool[Tensor, "*bh q k"]

    def __post_init__(self) -> None:
        _refuse_dtype("mask", self.tensor)
        _refuse_rank("mask", self.tensor)

    def tile(
        self, rows: slice, cols: slice, lengths: Lengths, device: torch.device | str | None = None
    ) -> Bool[Tensor, "*bh rows cols"]:
        tensor = self.tensor if device is None else self.tensor.to(device)
        if tensor.shape[-2] != 1:
            _refuse_length("mask rows", tensor.shape[-2], lengths[0])
            tensor = tensor[..., rows, :]
        if tensor.shape[-1] != 1:
            _refuse_length("mask columns", tensor.shape[-1], lengths[1])
            tensor = tensor[..., cols]
        return tensor

    def natural_lengths(self) -> Lengths | None:
        return self.tensor.shape[-2], self.tensor.shape[-1]

    def of_heads(self, heads: Sequence[int]) -> Mask:
        tensor = of_heads(self.tensor, heads)
        return self if tensor is self.tensor else Dense(tensor)


def _refuse_dtype(name: str, tensor: Tensor) -> None:
    if tensor.dtype != torch.bool:
        raise InvalidArgument(
            f"{name} must be boolean, True = may attend; got {tensor.dtype}. "
            "Write mask != 0 for a 0/1 mask, or hand numbers to be added to the scores over as bias."
        )


def _refuse_rank(name: str, tensor: Tensor) -> None:
    if tensor.ndim not in (2, 4):
        raise InvalidArgument(
            f"{name} must have the shape (queries, keys) or (batch, heads, queries, keys); "
            f"got {tuple(tensor.shape)}. Write mask[:, None] for one per item, mask[None] for one per head."
        )


def _refuse_length(name: str, got: int, expected: int) -> None:
    if got != expected:
        raise InvalidArgument(f"{name} must be as many as the sequence has, {expected}; got {got}.")


def _refuse_counts(name: str, value: object) -> None:
    if isinstance(value, Tensor):
        good = (
            value.ndim == 1
            and not (value.is_floating_point() or value.is_complex())
            and value.dtype != torch.bool
        )
        got = f"{value.dtype} {tuple(value.shape)}"
    else:
        good = isinstance(value, int) and not isinstance(value, bool) and value >= 0
        got = repr(value)
    if not good:
        raise InvalidArgument(f"{name} must be a number ≥ 0, or one whole number per item; got {got}.")
