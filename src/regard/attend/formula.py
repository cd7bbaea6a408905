"""The path for everything: attention by its formula, in float32 or wider, in operations that PyTorch
differentiates.

    logits = (softcap · tanh(scale · Q Kᵀ / softcap) + bias) / temperature,    output =
    dropout(softmax(logits)) V

It takes any problem, under any transform, with gradients of any order, and O(q · k) memory. The heads of one
group are the rows of one product with their common key, so no key is repeated. Where no gradient is wanted, a
large problem is computed some rows at a time, and only the weights that were asked for are kept.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from regard.attend.hidden import without_hidden
from regard.attend.lse import softmax_with_lse
from regard.attend.problem import Problem, compiled_or_transformed
from regard.attend.reference import Attended

if TYPE_CHECKING:
    from jaxtyping import Float

ROWS_AT_ONCE = 1 << 24  # numbers in the logits of one part


def takes(problem: Problem) -> bool:
    """Any problem."""
    return True


def attend(problem: Problem) -> Attended:
    """Output, and weights and lse where wanted."""
    p = without_hidden(problem) if problem.hides else problem
    batch, heads, queries, _ = p.query.shape
    if torch.is_grad_enabled() or compiled_or_transformed():
        return _rows(p)
    step = max(1, ROWS_AT_ONCE // max(1, batch * heads * p.key.shape[2]))
    if step >= queries:
        return _rows(p)
    parts = [_rows(p, slice(start, min(start + step, queries))) for start in range(0, queries, step)]
    output, weights, lse = zip(*parts, strict=True)
    return Attended(
        torch.cat(output, dim=2),
        torch.cat(weights, dim=2) if p.weights else None,
        torch.cat(lse, dim=2) if p.lse else None,
    )


def _rows(p: Problem, rows: slice | None = None) -> Attended:
    """The formula on some of the rows, or on all."""
    wide = torch.promote_types(p.query.dtype, torch.float32)
    query, bias = p.query, p.bias
    if rows is not None:
        query = query[:, :, rows]
        bias = bias if bias is None or bias.shape[-2] == 1 else bias[..., rows, :]
    query, key, value = (x.to(wide) for x in (query, p.key, p.value))
    heads = query.shape[1]
    logits = _unfold(_fold(query * p.scale, key) @ key.mT, heads)  # (b, h, rows, k)
    if p.softcap is not None:
        logits = p.softcap * torch.tanh(logits / p.softcap)
    if bias is not None:
        logits = logits + bias.to(wide)
    allowed = p.allowed(rows)
    if allowed is not None:
        logits = logits.masked_fill(~allowed, -math.inf)
    weights, lse = softmax_with_lse(logits, p.temperature)
    dropped = torch.nn.functional.dropout(weights, p.dropout_p) if p.dropout_p else weights
    output = _unfold(_fold(dropped, key) @ value, heads)
    return Attended(
        output.to(p.query.dtype), weights.to(p.query.dtype) if p.weights else None, lse if p.lse else None
    )


def _fold(x: Float[Tensor, "b h q c"], key: Float[Tensor, "b g k d"]) -> Float[Tensor, "b g rq c"]:
    """Heads that share a key become rows of one product with it."""
    kv_heads = key.shape[1]
    if x.shape[1] == kv_heads:
        return x
    return x.reshape(x.shape[0], kv_heads, x.shape[1] // kv_heads * x.shape[2], x.shape[3])


def _unfold(x: Float[Tensor, "b g rq c"], heads: int) -> Float[Tensor, "b h q c"]:
    if x.shape[1] == heads:
        return x
    return x.reshape(x.shape[0], heads, x.shape[1] * x.shape[2] // heads, x.shape[3])
