"""`scaled_dot_product_attention` with PyTorch's argument names and semantics, for code written against it.

    output = softmax(scale · Q Kᵀ + attn_mask) V

What differs from `regard.attention` is PyTorch's: a boolean attn_mask says who may attend, a floating one is
added, of any rank that broadcasts; `is_causal` aligns top-left; dropout is applied whenever dropout_p > 0;
heads are grouped only with `enable_gqa`; any number of leading axes. What differs from PyTorch is what went
wrong there: a row that sees no key gives 0, with gradients 0; what a mask hides never reaches the output, and
masks combine with `is_causal`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from regard.attend.attention import attention
from regard.attend.reference import Attended
from regard.errors import InvalidArgument

if TYPE_CHECKING:
    from jaxtyping import Bool, Float


def scaled_dot_product_attention(
    query: Float[Tensor, "*bh q d"],
    key: Float[Tensor, "*bg k d"],
    value: Float[Tensor, "*bg k dv"],
    attn_mask: Bool[Tensor, "*#bh q k"] | Float[Tensor, "*#bh q k"] | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Float[Tensor, "*bh q dv"]:
    """`torch.nn.functional.scaled_dot_product_attention`, argument for argument.

    >>> query, key, value = torch.randn(3, 2, 8, 10, 16).unbind()
    >>> ours = scaled_dot_product_attention(query, key, value, is_causal=True)
    >>> theirs = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    >>> torch.allclose(ours, theirs, atol=1e-6)
    True
    """
    leading = query.shape[:-2]
    if min(query.ndim, key.ndim, value.ndim) < 2:
        raise InvalidArgument(
            "query, key and value must end in the axes (length, channels); "
            f"got {tuple(query.shape)}, {tuple(key.shape)} and {tuple(value.shape)}."
        )
    if not enable_gqa:
        leading = torch.broadcast_shapes(leading, key.shape[:-2], value.shape[:-2])  # type: ignore[no-untyped-call]
        query, key, value = (
            x if x.shape[:-2] == leading else x.expand(*leading, -1, -1) for x in (query, key, value)
        )
    elif query.ndim < 3 or key.ndim < 3:
        raise InvalidArgument(f"enable_gqa needs an axis of heads; got query {tuple(query.shape)}.")
    queries, keys = query.shape[-2], key.shape[-2]
    mask, bias = None, None
    if attn_mask is not None:
        attn_mask = _as_four_axes(attn_mask, leading, queries, keys)
        if attn_mask.dtype == torch.bool:
            mask = attn_mask
        elif attn_mask.dtype.is_floating_point:
            bias = attn_mask
        else:
            raise InvalidArgument(f"attn_mask must be boolean or floating; got {attn_mask.dtype}.")
    aligned = is_causal and queries == keys
    if is_causal and not aligned:  # PyTorch's triangle starts at the first key
        triangle = torch.ones(queries, keys, dtype=torch.bool, device=query.device).tril()
        mask = triangle if mask is None else mask & triangle
    result = attention(
        *(_four(x) for x in (query, key, value)),
        mask=mask,
        bias=bias,
        causal=aligned,
        scale=scale,
        dropout_p=dropout_p,
        training=dropout_p > 0,
    )
    output = result.output if isinstance(result, Attended) else result
    return output if len(leading) == 2 else output.reshape(*leading, *output.shape[-2:])


def _four(x: Float[Tensor, "*bh n d"]) -> Float[Tensor, "b h n d"]:
    """Any number of leading axes as two."""
    if x.ndim == 4:
        return x
    return x.reshape(-1, x.shape[-3] if x.ndim > 2 else 1, *x.shape[-2:])


def _as_four_axes(mask: Tensor, leading: torch.Size, queries: int, keys: int) -> Tensor:
    """The mask of any rank that broadcasts to (*leading, q, k), with four axes or two."""
    try:
        torch.broadcast_shapes(mask.shape, (*leading, queries, keys))  # type: ignore[no-untyped-call]
    except RuntimeError:
        raise InvalidArgument(
            f"attn_mask must broadcast to {(*leading, queries, keys)}; got {tuple(mask.shape)}."
        ) from None
    if mask.ndim < 2:
        mask = mask.reshape(1, -1)
    if mask.ndim == 2 or (len(leading) == 2 and mask.ndim == 4):
        return mask
    if len(leading) <= 2:
        return mask.reshape((1,) * (4 - mask.ndim) + tuple(mask.shape)) if len(leading) == 2 else mask[None]
    return _four(mask.expand(*leading, *mask.shape[-2:]))
