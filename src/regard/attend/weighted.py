"""Output and weights together, when the weights are asked for: they are made once, and the output from them.

    W = softmax(scale · Q Kᵀ + bias),    O = W V
    dV = Wᵀ dO,    dS = W ∘ (dO Vᵀ + dW − Σ (dO ∘ O) − Σ (dW ∘ W)),    dQ = scale · dS K,    dK = scale · dSᵀ
    Q

Some rows of some heads at a time, so that a part is still in the cache between its products and its softmax.
This takes two products where the fused kernel and the weights beside it take three, and half the passes over
memory of the formula on whole matrices. The output agrees with the kernel's within rounding.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.attend import formula, memory
from regard.attend.problem import Problem

if TYPE_CHECKING:
    from jaxtyping import Float

AT_ONCE = 1 << 20  # numbers in a part, 4 MB in float32: in smaller parts threads wait more often


def weighted(
    query: Float[Tensor, "b h q d"],
    key: Float[Tensor, "b g k d"],
    value: Float[Tensor, "b g k dv"],
    bias: Float[Tensor, "#b #h #q k"] | None,
    causal: bool,
    scale: float,
) -> tuple[Float[Tensor, "b h q dv"], Float[Tensor, "b h q k"]]:
    """Output and weights in the dtype of the query, computed in float32 or wider; rows of −∞ alone give 0.

    Differentiable any number of times in query, key and value. `causal` is for as many queries as keys.
    """
    if torch.is_grad_enabled() and (query.requires_grad or key.requires_grad or value.requires_grad):
        result: tuple[Tensor, Tensor] = _Weighted.apply(query, key, value, bias, causal, scale)  # type: ignore[no-untyped-call]
        return result
    return _forward(query, key, value, bias, causal, scale)


def _parts(weights: Tensor, group: int) -> Iterator[tuple[int, slice, slice, slice]]:
    """Item, heads, their key heads, and rows of every part. Heads of one group go one by one."""
    batch, heads, queries, keys = weights.shape
    heads_at_once = max(1, AT_ONCE // (queries * keys)) if group == 1 else 1
    rows_at_once = max(16, AT_ONCE // keys)
    for item in range(batch):
        for first in range(0, heads, heads_at_once):
            some = slice(first, min(first + heads_at_once, heads))
            theirs = some if group == 1 else slice(first // group, first // group + 1)
            for start in range(0, queries, rows_at_once):
                yield item, some, theirs, slice(start, min(start + rows_at_once, queries))


def _forward(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    batch, heads, queries, _ = query.shape
    wide = torch.promote_types(query.dtype, torch.float32)
    scaled, columns, v = query.to(wide) * scale, key.to(wide).mT, value.to(wide)
    weights = memory.empty((batch, heads, queries, key.shape[2]), like=query)
    output = query.new_empty(batch, queries, heads, value.shape[3]).transpose(
        1, 2
    )  # as projections lay it out
    for item, some, theirs, rows in _parts(weights, heads // key.shape[1]):
        stop = rows.stop if causal else key.shape[2]
        logits = torch.bmm(scaled[item, some, rows], columns[item, theirs, :, :stop])
        part = weights[item, some, rows, :stop]
        if part.dtype == wide and bias is None and not causal:
            torch.softmax(logits, dim=-1, out=part)
            output[item, some, rows] = torch.bmm(part, v[item, theirs])
            continue
        softmax_(logits, _of(bias, item, some, rows, stop), rows.start if causal else None)
        part.copy_(logits)
        weights[item, some, rows, stop:] = 0
        output[item, some, rows] = torch.bmm(logits, v[item, theirs, :stop]).to(query.dtype)
    return output, weights


def _of(bias: Tensor | None, item: int, heads: slice, rows: slice, stop: int) -> Tensor | None:
    """The part of a bias that broadcasts."""
    if bias is None:
        return None
    part = bias[item if bias.shape[0] > 1 else 0]
    part = part[heads] if part.shape[0] > 1 else part
    return (part[:, rows] if part.shape[1] > 1 else part)[..., :stop]


def softmax_(logits: Float[Tensor, "hs rows stop"], bias: Tensor | None, diagonal: int | None) -> None:
    """In place; a row of −∞ alone becomes 0. Of a causal part, the keys from `diagonal` on are its own
    rows'.
    """
    if diagonal is not None:
        own = logits[..., diagonal:]
        own.masked_fill_(torch.ones_like(own[0], dtype=torch.bool).triu_(1), -math.inf)
    if bias is None:
        torch.softmax(logits, dim=-1, out=logits)
        return
    logits += bias
    empty = logits.amax(dim=-1, keepdim=True) == -math.inf
    torch.softmax(logits.masked_fill_(empty, 0.0), dim=-1, out=logits)
    logits.masked_fill_(empty, 0.0)


class _Weighted(torch.autograd.Function):
    """Output and weights as functions of query, key and value."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, causal: bool, scale: float
    ) -> tuple[Tensor, Tensor]:
        output, weights = _forward(query, key, value, bias, causal, scale)
        ctx.save_for_backward(query, key, value, bias, output, weights)
        ctx.causal, ctx.scale = causal, scale
        ctx.set_materialize_grads(False)
        return output, weights

    @staticmethod
    def backward(ctx: Any, d_output: Tensor | None, d_weights: Tensor | None) -> tuple[Tensor | None, ...]:
        query, key, value, bias, output, weights = ctx.saved_tensors
        if d_output is None and d_weights is None:
            return (None,) * 6
        if torch.is_grad_enabled():  # a gradient that is to be differentiated again
            p = Problem(
                query, key, value, ctx.causal, None, None, None, bias, ctx.scale, 1.0, None, 0.0, True, False
            )
            again = formula.attend(p)
            pairs = [
                (x, d)
                for x, d in ((again.output, d_output), (again.weights, d_weights))
                if x is not None and d is not None
            ]
            results, grads = zip(*pairs, strict=True)
            given = (query, key, value)
            grads = torch.autograd.grad(results, given, grads, create_graph=True, allow_unused=True)
            return (*grads, None, None, None)
        saved = (query, key, value, output, weights)
        return (*_backward(*saved, d_output, d_weights, ctx.causal, ctx.scale), None, None, None)


def _backward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor,
    weights: Tensor,
    d_output: Tensor | None,
    d_weights: Tensor | None,
    causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    wide = torch.promote_types(query.dtype, torch.float32)
    d_out = torch.zeros_like(output, dtype=wide) if d_output is None else d_output.to(wide)
    mean = (d_out * output.to(wide)).sum(dim=-1, keepdim=True)  # (b, h, q, 1)
    q, k, v = query.to(wide), key.to(wide), value.to(wide)
    d_query, d_key, d_value = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
    for item, some, theirs, rows in _parts(weights, query.shape[1] // key.shape[1]):
        stop = rows.stop if causal else key.shape[2]
        part, d_part = weights[item, some, rows, :stop].to(wide), d_out[item, some, rows]
        d_logits = torch.bmm(d_part, v[item, theirs, :stop].mT)  # (hs, rows, stop)
        if d_weights is not None:
            d_own = d_weights[item, some, rows, :stop].to(wide)
            d_logits += d_own - (d_own * part).sum(dim=-1, keepdim=True)
        d_logits.sub_(mean[item, some, rows]).mul_(part).mul_(scale)
        d_query[item, some, rows] = torch.bmm(d_logits, k[item, theirs, :stop])
        d_key[item, theirs, :stop] += torch.bmm(d_logits.mT, q[item, some, rows])
        d_value[item, theirs, :stop] += torch.bmm(part.mT, d_part)
    return d_query.to(query.dtype), d_key.to(key.dtype), d_value.to(value.dtype)
