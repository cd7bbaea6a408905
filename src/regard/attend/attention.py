"""Attention with everything that composes with it: the public function."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from regard.attend.checks import (
    check_bias,
    check_heads,
    check_key_mask,
    check_mask,
    check_numbers,
    check_window,
)
from regard.attend.mask import Mask
from regard.attend.reference import Attended, reference_attention

if TYPE_CHECKING:
    from jaxtyping import Bool, Float


def attention(
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
    dropout_p: float = 0.0,
    training: bool = False,
    return_weights: bool = False,
    return_lse: bool = False,
) -> Tensor | Attended:
    """Scaled dot-product attention, exact."""
    check_heads(query, key, value)
    shape = (*query.shape[:3], key.shape[2])
    if mask is not None:
        check_mask(mask, shape)
    if bias is not None:
        check_bias(bias, shape)
    if key_mask is not None:
        check_key_mask(key_mask, shape[0], shape[3])
    if window is not None:
        check_window(window)
    check_numbers(scale, temperature, softcap, dropout_p)
    wide = torch.promote_types(query.dtype, torch.float32)
    output, weights, lse = reference_attention(
        query.to(wide),
        key.to(wide),
        value.to(wide),
        mask=mask,
        bias=bias,
        key_mask=key_mask,
        causal=causal,
        window=window,
        scale=scale,
        temperature=temperature,
        softcap=softcap,
    )
    assert weights is not None
    if training and dropout_p > 0:
        keep = torch.rand_like(weights) >= dropout_p
        group = query.shape[1] // max(key.shape[1], 1)
        dropped = weights * keep / (1 - dropout_p) if dropout_p < 1 else weights * 0
        output = dropped @ value.to(wide).repeat_interleave(group, dim=1)
    output = output.to(query.dtype)
    if not (return_weights or return_lse):
        return output
    return Attended(output, weights.to(query.dtype) if return_weights else None, lse if return_lse else None)
