"""Additive attention, the ancestor: a small network instead of a product says how well query and key fit.

    score_pj = wᵀ tanh(q_p + k_j),      weights = softmax over j,      output = weights · V

with q and k already projected to the network's hidden size, its bias included in one of them. Bahdanau, Cho &
Bengio 2015, "Neural Machine Translation by Jointly Learning to Align and Translate", §A.1.2. The tanh of
every pair makes it O(q · k · d) in time and in memory: one reason why products won.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from regard.attend.checks import check_heads, check_key_mask, check_mask
from regard.attend.lse import softmax_with_lse
from regard.attend.mask import Mask
from regard.attend.reference import Attended, allowed_keys
from regard.errors import InvalidArgument

if TYPE_CHECKING:
    from jaxtyping import Bool, Float


def additive_attention(
    query: Float[Tensor, "b h q d"],
    key: Float[Tensor, "b g k d"],
    value: Float[Tensor, "b g k dv"],
    weight: Float[Tensor, d] | Float[Tensor, "h d"],
    *,
    mask: Bool[Tensor, "*bh q k"] | Mask | None = None,
    key_mask: Bool[Tensor, "b k"] | None = None,
    causal: bool = False,
    return_weights: bool = False,
    return_lse: bool = False,
) -> Tensor | Attended:
    """Attention with the scores wᵀ tanh(q + k).

    Arguments:
        query, key: projected to the hidden size d of the network.
        weight: w, (d,) or one for each head, (h, d).
        mask: boolean, True = may attend, or a rule of regard.masks.
        key_mask: (b, k), True = no padding.
        causal: no query sees a later key. The last query lies on the last key, whatever their numbers.

    Returns the output (b, h, q, dv), or an `Attended` if weights (b, h, q, k) or lse (b, h, q) are asked for.
    A query that sees no key has output 0, weights 0 and lse −∞.
    Raises `InvalidArgument` if shapes or masks cannot be right.
    Computed in float32 or wider, with b · h · q · k · d numbers in memory.

    >>> annotations, states = torch.randn(1, 1, 7, 16), torch.randn(1, 1, 3, 16)
    >>> context = additive_attention(states, annotations, annotations, torch.randn(16), return_weights=True)
    >>> context.output.shape, context.weights.sum(dim=-1).allclose(torch.ones(3))
    (torch.Size([1, 1, 3, 16]), True)
    """
    check_heads(query, key, value)
    if not isinstance(weight, Tensor) or tuple(weight.shape) not in (query.shape[3:], query.shape[1::2]):
        got = tuple(weight.shape) if isinstance(weight, Tensor) else type(weight).__name__
        raise InvalidArgument(
            f"weight must have the shape (channels,) = {tuple(query.shape[3:])} or (heads, channels) = "
            f"{tuple(query.shape[1::2])}; got {got}."
        )
    if mask is not None:
        check_mask(mask, (*query.shape[:3], key.shape[2]))
    if key_mask is not None:
        check_key_mask(key_mask, query.shape[0], key.shape[2])
    wide = torch.promote_types(query.dtype, torch.float32)
    group = query.shape[1] // max(key.shape[1], 1)
    q = query.to(wide)
    k, v = (x.to(wide).repeat_interleave(group, dim=1) for x in (key, value))
    allowed = allowed_keys(q, k, mask=mask, bias=None, key_mask=key_mask, causal=causal, window=None)
    seen = allowed.any(dim=-2)[..., None]  # (b, h, k, 1): what nobody sees takes no part
    k, v = k.where(seen, 0), v.where(seen, 0)

    hidden = torch.tanh(q[:, :, :, None] + k[:, :, None])  # (b, h, q, k, d)
    w = weight.to(wide).expand(query.shape[1], -1)[:, None, :, None]  # (h, 1, d, 1)
    scores = (hidden @ w)[..., 0]  # (b, h, q, k)
    weights, lse = softmax_with_lse(scores.masked_fill(~allowed, -math.inf))
    output = (weights @ v).to(query.dtype)
    if not (return_weights or return_lse):
        return output
    return Attended(output, weights.to(query.dtype) if return_weights else None, lse if return_lse else None)
