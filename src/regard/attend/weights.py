"""The weights themselves, beside an output that a fused kernel computed.

    weights = softmax(scale · Q Kᵀ + bias),    dS = W ∘ (dW − Σ dW ∘ W)

They are written once, some rows of one head at a time, so that each part is still in the cache between its
product and its softmax, into memory that comes in huge pages. A causal part stops at its last key.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.attend import memory

if TYPE_CHECKING:
    from jaxtyping import Float

AT_ONCE = 1 << 20  # numbers in a part


def weights_of(
    query: Float[Tensor, "b h q d"],
    key: Float[Tensor, "b g k d"],
    bias: Float[Tensor, "#b #h #q k"] | None,
    causal: bool,
    scale: float,
) -> Float[Tensor, "b h q k"]:
    """Weights in the dtype of the query, softmax in float32 or wider. Differentiable, any number of times."""
    if torch.is_grad_enabled() and (query.requires_grad or key.requires_grad):
        result: Tensor = _Weights.apply(query, key, bias, causal, scale)  # type: ignore[no-untyped-call]
        return result
    return _compute(query, key, bias, causal, scale)


def _compute(query: Tensor, key: Tensor, bias: Tensor | None, causal: bool, scale: float) -> Tensor:
    batch, heads, queries, _ = query.shape
    keys, group = key.shape[2], heads // key.shape[1]
    wide = torch.promote_types(query.dtype, torch.float32)
    scaled, columns = query.to(wide) * scale, key.to(wide).mT  # (b, h, q, d), (b, g, d, k)
    weights = memory.empty((batch, heads, queries, keys), like=query)
    heads_at_once = max(1, AT_ONCE // (queries * keys)) if group == 1 else 1
    rows_at_once = max(16, AT_ONCE // keys)
    scratch = scaled.new_empty(
        min(heads, heads_at_once) * min(queries, rows_at_once) * keys
    )  # stays in the cache
    for item in range(batch):
        for head in range(0, heads, heads_at_once):
            some = slice(head, min(head + heads_at_once, heads))
            theirs = slice(head // group, head // group + 1) if group > 1 else some
            for start in range(0, queries, rows_at_once):
                rows = slice(start, min(start + rows_at_once, queries))
                stop = rows.stop if causal else keys
                shape = (some.stop - some.start, rows.stop - rows.start, stop)
                logits = scratch[: math.prod(shape)].view(shape)
                torch.bmm(scaled[item, some, rows], columns[item, theirs, :, :stop], out=logits)
                _softmax(logits, bias, item, some, rows, causal)
                weights[item, some, rows, :stop] = logits
                weights[item, some, rows, stop:] = 0
    return weights


def _softmax(
    logits: Float[Tensor, "hs rows stop"],
    bias: Tensor | None,
    item: int,
    heads: slice,
    rows: slice,
    causal: bool,
) -> None:
    """In place; a row of −∞ alone becomes 0."""
    if causal:  # the keys of the own rows are a triangle at the end
        own = logits[..., rows.start :]
        own.masked_fill_(torch.ones_like(own[0], dtype=torch.bool).triu_(1), -math.inf)
    if bias is not None:
        part = bias[item if bias.shape[0] > 1 else 0]
        part = part[heads] if part.shape[0] > 1 else part
        part = part[:, rows] if part.shape[1] > 1 else part
        logits += part[..., : logits.shape[2]]
        empty = logits.amax(dim=-1, keepdim=True) == -math.inf
        torch.softmax(logits.masked_fill_(empty, 0.0), dim=-1, out=logits)
        logits.masked_fill_(empty, 0.0)
    else:
        torch.softmax(logits, dim=-1, out=logits)


class _Weights(torch.autograd.Function):
    """The weights as a function of query and key."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, bias: Tensor | None, causal: bool, scale: float
    ) -> Tensor:
        weights = _compute(query, key, bias, causal, scale)
        ctx.save_for_backward(query, key, weights)
        ctx.scale = scale
        return weights

    @staticmethod
    def backward(ctx: Any, d_weights: Tensor) -> tuple[Tensor | None, ...]:
        query, key, weights = ctx.saved_tensors
        batch, heads, queries, keys = weights.shape
        kv_heads = key.shape[1]
        wide = torch.promote_types(query.dtype, torch.float32)
        d_logits = weights.to(wide) * (d_weights - (d_weights * weights).to(wide).sum(dim=-1, keepdim=True))
        d_logits = (ctx.scale * d_logits).reshape(batch, kv_heads, heads // kv_heads * queries, keys)
        rows = query.to(wide).reshape(batch, kv_heads, heads // kv_heads * queries, query.shape[3])
        d_query = (d_logits @ key.to(wide)).reshape(query.shape)
        return d_query.to(query.dtype), (d_logits.mT @ rows).to(key.dtype), None, None, None
