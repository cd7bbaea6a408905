"""One attention to compute, put into one form, whatever form its masks came in.

Rules that are and-ed together fall apart into what the kernels know by itself (causality, window, padding);
whatever remains is evaluated rectangle by rectangle. Nothing here reads the contents of a tensor.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.attend import pytorch
from regard.attend.checks import check_key_mask, check_mask
from regard.attend.mask import And, Mask
from regard.attend.mask_rules import Causal, Dense, KeyMask, Padding, Window

if TYPE_CHECKING:
    from jaxtyping import Bool, Float


Sides = tuple[int | None, int | None]


@dataclass(eq=False)
class Problem:
    """Everything that determines an attention."""

    query: Float[Tensor, "b h q d"]
    key: Float[Tensor, "b g k d"]
    value: Float[Tensor, "b g k dv"]
    causal: bool  # j ≤ p
    window: Sides | None  # p − left ≤ j ≤ p + right
    key_mask: Bool[Tensor, "b k"] | None
    mask: Bool[Tensor, "*bh q k"] | Mask | None  # what remains
    bias: Float[Tensor, "*bh q k"] | None
    scale: float
    temperature: float
    softcap: float | None
    dropout_p: float  # 0 unless training
    weights: bool  # wanted
    lse: bool  # wanted

    def but(self, **changes: Any) -> Problem:
        """The same with these changes."""
        return Problem(**{name: changes.get(name, getattr(self, name)) for name in _FIELDS})

    @property
    def group(self) -> int:
        """Query heads per key head."""
        heads, kv_heads = self.query.shape[1], self.key.shape[1]
        return heads // kv_heads if kv_heads else 1

    @property
    def nothing(self) -> bool:
        """Whether an axis has the size 0."""
        return not (self.query.numel() and self.key.numel() and self.value.numel())

    @property
    def mild(self) -> bool:
        """Whether the temperature can be folded into the scale: no limit, and nothing that overflows."""
        return 1e-6 <= self.temperature <= 1e6

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


_FIELDS = tuple(field.name for field in fields(Problem))


def simplify(problem: Problem) -> Problem:
    """The same problem with its rules taken apart, and without what forbids nothing or is never seen."""
    if isinstance(problem.mask, Mask):
        problem = _take_apart(problem, problem.mask)
    if problem.window is not None:
        problem = _narrow(problem, problem.window)
    if problem.causal and problem.query.shape[2] == 1:  # the one query lies on the last key
        return problem.but(causal=problem.key.shape[2] == 0)
    return problem


def _take_apart(p: Problem, mask: Mask) -> Problem:
    """Rules that are and-ed together, each in the place that the paths know it from."""
    shape = (p.query.shape[0], p.query.shape[1], p.query.shape[2], p.key.shape[2])
    lengths, device = shape[2:], p.query.device
    causal, window, key_mask = p.causal, p.window, p.key_mask
    rest: Mask | None = None
    for rule in _conjuncts(mask):
        if isinstance(rule, Causal):
            causal = True
        elif isinstance(rule, Window):
            window = _narrower(window or (None, None), (rule.left, rule.right))
        elif isinstance(rule, (KeyMask, Padding)):
            padding = rule.tile(slice(0, 1), slice(0, shape[3]), lengths, device)[:, 0, 0]
            check_key_mask(padding, shape[0], shape[3])
            key_mask = padding if key_mask is None else key_mask & padding
        else:
            rest = rule if rest is None else rest & rule
    if not isinstance(rest, Dense):
        return p.but(causal=causal, window=window, key_mask=key_mask, mask=rest)
    check_mask(rest.tensor, shape)
    return p.but(causal=causal, window=window, key_mask=key_mask, mask=rest.tensor.to(device))


def _narrow(p: Problem, window: Sides) -> Problem:
    """The window with what it shares with causality, and without the keys before all windows."""
    left, right = window
    if p.causal:
        p, right = p.but(causal=False), 0
    if torch.compiler.is_compiling():  # lengths are symbols: a comparison would tie the graph to its outcome
        return p.but(window=(left, right))
    queries, keys = p.query.shape[2], p.key.shape[2]
    before = 0 if left is None else keys - queries - left
    if before > 0 and not p.weights and not isinstance(p.mask, Mask):
        p = p.but(
            key=p.key[:, :, before:],
            value=p.value[:, :, before:],
            key_mask=None if p.key_mask is None else p.key_mask[:, before:],
            mask=None if p.mask is None else _columns(p.mask, before),
            bias=None if p.bias is None else _columns(p.bias, before),
        )
        keys -= before
    if left is not None and left >= keys - 1:  # as far as the first key, from anywhere
        left = None
    if right is not None and right >= max(queries, keys) - 1:
        right = None
    if left is None and right in (None, 0):
        return p.but(window=None, causal=right == 0)
    return p.but(window=(left, right))


def _columns(x: Tensor, start: int) -> Tensor:
    return x if x.shape[-1] == 1 else x[..., start:]


def _conjuncts(mask: Mask) -> list[Mask]:
    return [*_conjuncts(mask.left), *_conjuncts(mask.right)] if isinstance(mask, And) else [mask]


def _narrower(one: Sides, other: Sides) -> Sides:
    left, right = (
        min((n for n in sides if n is not None), default=None) for sides in zip(one, other, strict=True)
    )
    return left, right


def default_scale(channels: int) -> float:
    """1 / √d. With no channels all scores are 0, whatever the scale."""
    return 1 / math.sqrt(channels) if channels else 1.0


def compiled_or_transformed() -> bool:
    """Whether tensors may be symbols of a graph or of a function transform, so that none of them has a
    value.
    """
    return torch.compiler.is_compiling() or transformed()


def transformed() -> bool:
    """Whether vmap, grad and kin of torch.func, or forward-mode differentiation are at work."""
    return _functorch_level() is not None or torch.autograd.forward_ad._current_level >= 0


# torch.compile follows the first one only of late; the second costs it graphs where it follows both.
_functorch_level = (
    torch._C._functorch.peek_interpreter_stack
    if pytorch.VERSION >= (2, 13)
    else torch._C._functorch.maybe_current_level
)
