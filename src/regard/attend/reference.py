"""Attention by its formula: the oracle of everything else here.

    logits  = (softcap · tanh(scale · Q Kᵀ / softcap) + bias) / temperature,   −∞ where not allowed
    lse     = log Σ exp(logits)
    weights = exp(logits − lse),   0 where not allowed
    output  = weights · V

Vaswani et al. 2017, "Attention Is All You Need", §3.2.1. In the dtype of its arguments (use float64), with
O(q · k) memory, on any device. It forms no opinion about speed.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from regard.attend.lse import softmax_with_lse
from regard.attend.mask import Mask
from regard.attend.mask_rules import Causal, Window

if TYPE_CHECKING:
    from jaxtyping import Bool, Float


class Attended(NamedTuple):
    """What an attention gives: the output, and weights and log-sum-exp where they were asked for."""

    output: Float[Tensor, "b h q dv"]
    weights: Float[Tensor, "b h q k"] | None = None
    lse: Float[Tensor, "b h q"] | None = None


def reference_attention(
    query: Float[Tensor, "b h q d"],
    key: Float[Tensor, "b g k d"],
    value: Float[Tensor, "b g k dv"],
    *,
    mask: Bool[Tensor, "*bh q k"] | Mask | None = None,
    bias: Float[Tensor, "*bh q k"] | None = None,
    key_mask: Bool[Tensor, "b k"] | None = None,
    causal: bool = False,
    window: tuple[int | None, int | None] | None = None,
    scale: float | None = None,
    temperature: float = 1.0,
    softcap: float | None = None,
) -> Attended:
    """Output, weights and lse of every row, by the formula above.

    A row with no allowed key has output 0, weights 0 and lse −∞. A key that no query may see takes no part at
    all.
    """
    group = query.shape[1] // max(key.shape[1], 1)
    key, value = key.repeat_interleave(group, dim=1), value.repeat_interleave(group, dim=1)  # (b, h, k, ·)
    allowed = allowed_keys(query, key, mask=mask, bias=bias, key_mask=key_mask, causal=causal, window=window)
    seen = allowed.any(dim=-2)[..., None]  # (b, h, k, 1)
    key, value = key.where(seen, 0), value.where(seen, 0)

    logits = (query @ key.mT) * (1 / math.sqrt(max(query.shape[-1], 1)) if scale is None else scale)
    if softcap is not None:
        logits = softcap * torch.tanh(logits / softcap)
    if bias is not None:
        logits = logits + bias
    weights, lse = softmax_with_lse(logits.masked_fill(~allowed, -math.inf), temperature)
    return Attended(weights @ value, weights, lse)


def allowed_keys(
    query: Float[Tensor, "b h q d"],
    key: Float[Tensor, "b h k d"],
    *,
    mask: Bool[Tensor, "*bh q k"] | Mask | None,
    bias: Float[Tensor, "*bh q k"] | None,
    key_mask: Bool[Tensor, "b k"] | None,
    causal: bool,
    window: tuple[int | None, int | None] | None,
) -> Bool[Tensor, "b h q k"]:
    """Everything that forbids, and-ed together. A bias of −∞ forbids too."""
    lengths = query.shape[2], key.shape[2]
    allowed = torch.ones(*query.shape[:3], key.shape[2], dtype=torch.bool, device=query.device)
    if causal:
        allowed = allowed & Causal().full(lengths, query.device)
    if window is not None:
        allowed = allowed & Window(*window).full(lengths, query.device)
    if mask is not None:
        allowed = allowed & (mask.full(lengths, query.device) if isinstance(mask, Mask) else mask)
    if key_mask is not None:
        allowed = allowed & key_mask[:, None, None, :]
    if bias is not None:
        allowed = allowed & (bias > -math.inf)
    return allowed
