"""The weights themselves, beside an output that a fused kernel computed.

    weights = softmax(scale · Q Kᵀ + bias),    dS = W ∘ (dW − Σ dW ∘ W)

They are computed in place, in memory that comes in huge pages: a product and a softmax over as many heads as
are worth a call, so that little but these two is ever done.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.attend import memory

if TYPE_CHECKING:
    from jaxtyping import Float

AT_ONCE = 1 << 25  # numbers in a part


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
    batch, heads, queries, channels = query.shape
    kv_heads, keys = key.shape[1:3]
    wide = torch.promote_types(query.dtype, torch.float32)
    scaled = (query.to(wide) * scale).reshape(
        batch, kv_heads, -1, channels
    )  # heads of a group as rows: (b, g, rq, d)
    columns = key.to(wide).mT  # (b, g, d, k)
    if causal:  # the kernel's own mask, once more
        after = torch.ones(queries, keys, dtype=torch.bool, device=query.device).triu_(1)
        triangle = scaled.new_zeros(queries, keys).masked_fill_(after, -math.inf)[None, None]
        bias = triangle if bias is None else bias + triangle
    if bias is not None:  # (b or 1, g or 1, r or 1, q or 1, k)
        bias = bias.unflatten(1, (kv_heads, -1) if bias.shape[1] > 1 else (1, 1))  # type: ignore[no-untyped-call]
    weights = memory.empty((batch, kv_heads, heads // kv_heads * queries, keys), like=query)
    step = max(1, AT_ONCE // (heads // kv_heads * queries * keys))
    for item in range(batch):
        for start in range(0, kv_heads, step):
            some = slice(start, start + step)
            part = weights[item, some]  # (g, rq, k)
            logits = part if part.dtype == wide else torch.empty_like(part, dtype=wide)
            torch.bmm(scaled[item, some], columns[item, some], out=logits)
            if bias is None:
                torch.softmax(logits, dim=-1, out=logits)
            else:
                added = bias[item if bias.shape[0] > 1 else 0]
                _softmax(logits, added[some] if added.shape[0] > 1 else added, queries)
            if logits is not part:
                part.copy_(logits)
    return weights.view(batch, heads, queries, keys)


def _softmax(logits: Float[Tensor, "g rq k"], bias: Float[Tensor, "#g #r #q k"], queries: int) -> None:
    """In place, after adding the bias; a row of −∞ alone becomes 0."""
    logits.unflatten(1, (-1, queries)).add_(bias)  # type: ignore[no-untyped-call]
    empty = logits.amax(dim=-1, keepdim=True) == -math.inf
    some_empty = bool(empty.any())
    if some_empty:
        logits.masked_fill_(empty, 0.0)
    torch.softmax(logits, dim=-1, out=logits)
    if some_empty:
        logits.masked_fill_(empty, 0.0)


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
