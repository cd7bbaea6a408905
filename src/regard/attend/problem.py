"""One attention to compute, put into one form, whatever form its masks came in.

Rules that are and-ed together fall apart into what the kernels know by itself (causality, window, padding);
whatever remains is evaluated rectangle by rectangle. Nothing here reads the contents of a tensor.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from regard.attend.mask import And, Mask
from regard.attend.mask_rules import Causal, Dense, KeyMask, Padding, Window

if TYPE_CHECKING:
    from jaxtyping import Bool, Float


class Problem(NamedTuple):
    """Everything that determines an attention."""

    query: Float[Tensor, "b h q d"]
    key: Float[Tensor, "b g k d"]
    value: Float[Tensor, "b g k dv"]
    causal: bool  # j ≤ p
    window: tuple[int | None, int | None] | None  # p − left ≤ j ≤ p + right
    key_mask: Bool[Tensor, "b k"] | None
    mask: Bool[Tensor, "*bh q k"] | Mask | None  # what remains
    bias: Float[Tensor, "*bh q k"] | None
    scale: float
    temperature: float
    softcap: float | None
    dropout_p: float  # 0 unless training
    weights: bool  # wanted
    lse: bool  # wanted

    @property
    def group(self) -> int:
        """Query heads per key head."""
        heads, kv_heads = self.query.shape[1], self.key.shape[1]
        return heads // kv_heads if kv_heads else 1

    @property
    def hides(self) -> bool:
        """Whether there may be keys that no query sees, or queries that see no key."""
        rule = self.key_mask is not None or self.mask is not None or self.bias is not None
        return rule or self.window is not None or (self.causal and self.query.shape[2] > self.key.shape[2])

    def allowed(
        self, rows: slice | None = None, cols: slice | None = None
    ) -> Bool[Tensor, "*bh rows cols"] | None:
        """Who may attend to whom in a rectangle, broadcasting to (b, h, rows, cols); None: everyone to
        everyone.
        """
        lengths = self.query.shape[2], self.key.shape[2]
        rows = slice(0, lengths[0]) if rows is None else rows
        cols = slice(0, lengths[1]) if cols is None else cols
        device = self.query.device
        parts: list[Tensor] = []
        if self.causal:
            parts.append(Causal().tile(rows, cols, lengths, device))
        if self.window is not None:
            parts.append(Window(*self.window).tile(rows, cols, lengths, device))
        if self.key_mask is not None:
            parts.append(self.key_mask[:, None, None, cols])
        if self.mask is not None:
            rule = self.mask if isinstance(self.mask, Mask) else Dense(self.mask)
            parts.append(rule.tile(rows, cols, lengths, device))
        if self.bias is not None:
            parts.append(Dense(self.bias > -math.inf).tile(rows, cols, lengths))
        if not parts:
            return None
        allowed = parts[0]
        for part in parts[1:]:
            allowed = allowed & part
        return allowed


def simplify(problem: Problem) -> Problem:
    """The same problem with its rules taken apart, and without those that forbid nothing."""
    queries, keys = problem.query.shape[2], problem.key.shape[2]
    causal, window, key_mask, mask = problem.causal, problem.window, problem.key_mask, problem.mask
    if isinstance(mask, Mask):
        rest: Mask | None = None
        for rule in _conjuncts(mask):
            if isinstance(rule, Causal):
                causal = True
            elif isinstance(rule, Window):
                window = (
                    (rule.left, rule.right) if window is None else _narrower(window, (rule.left, rule.right))
                )
            elif isinstance(rule, KeyMask | Padding) and _fits(rule, problem):
                padding = rule.tile(slice(0, 1), slice(0, keys), (queries, keys), problem.query.device)[
                    :, 0, 0
                ]
                key_mask = padding if key_mask is None else key_mask & padding
            else:
                rest = rule if rest is None else rest & rule
        mask = rest.tensor if isinstance(rest, Dense) else rest
        if isinstance(mask, Tensor):
            mask = mask.to(problem.query.device)
    if window is not None:
        left, right = window
        if causal:
            right, causal = 0, False
        if left is not None and left >= keys - 1:  # as far as the first key, from anywhere
            left = None
        if right is not None and right >= max(queries, keys) - 1:
            right = None
        if left is None and right in (None, 0):
            causal, window = right == 0, None
        else:
            window = (left, right)
    if causal and queries == 1:  # the one query lies on the last key
        causal = keys == 0
    return problem._replace(causal=causal, window=window, key_mask=key_mask, mask=mask)


def default_scale(channels: int) -> float:
    """1 / √d. With no channels all scores are 0, whatever the scale."""
    return 1 / math.sqrt(channels) if channels else 1.0


def _fits(rule: KeyMask | Padding, problem: Problem) -> bool:
    """Whether a rule of padding has a length for every item; if not, its own error names the numbers."""
    return isinstance(rule, Padding) or rule.key_mask.shape[1] == problem.key.shape[2]


def _conjuncts(mask: Mask) -> list[Mask]:
    return [*_conjuncts(mask.left), *_conjuncts(mask.right)] if isinstance(mask, And) else [mask]


def _narrower(
    one: tuple[int | None, int | None], other: tuple[int | None, int | None]
) -> tuple[int | None, int | None]:
    left, right = (
        min((s for s in sides if s is not None), default=None) for sides in zip(one, other, strict=True)
    )
    return left, right


def compiled_or_transformed() -> bool:
    """Whether tensors may be symbols of a graph or of a function transform, so that none of them has a
    value.
    """
    return torch.compiler.is_compiling() or transformed()


def transformed() -> bool:
    """Whether vmap, grad and kin of torch.func, or forward-mode differentiation are at work."""
    return _functorch_level() is not None or torch.autograd.forward_ad._current_level >= 0


_functorch_level = torch._C._functorch.peek_interpreter_stack
