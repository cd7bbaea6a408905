"""The path through PyTorch's fused kernel for CPUs.

The kernel (FlashAttention in tiles, Dao et al. 2022) gives the log-sum-exp of every row beside the output, so
lse costs nothing, and weights cost one more product (weights.py). What it does not do by itself is done
around it:

- a causal mask over unequal lengths, windows, rules and biases become the one bias that it adds (−∞ = not
allowed); - channels of unequal number are filled up with zeros, grouped heads of a few queries become rows;
- gradients: flash.py.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from regard.attend.flash import EMPTY_ROWS_ARE_ZERO, EXISTS, GROUPS, flash
from regard.attend.hidden import without_hidden
from regard.attend.problem import Problem, transformed
from regard.attend.reference import Attended
from regard.attend.weighted import weighted
from regard.attend.weights import weights_of

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

FEW_ROWS = 64  # of a group together: that many are one tile of the kernel
MASK_AT_ONCE = 1 << 24  # numbers in a mask


def takes(p: Problem) -> bool:
    """On a CPU, whatever the kernel can be brought to do: no softcap, no dropout, no limit of the
    temperature.
    """
    return (
        p.query.device.type == "cpu"
        and EXISTS
        and p.softcap is None
        and not p.dropout_p
        and p.mild
        and not (p.bias is not None and p.bias.requires_grad)
        and not p.nothing
        and not transformed()
        and not (torch.compiler.is_compiling() and (p.weights or (p.lse and wants_grad(p))))
    )


def attend(problem: Problem) -> Attended:
    """Output, and weights and lse where wanted."""
    p, grad, compiling = problem, wants_grad(problem), torch.compiler.is_compiling()
    if _plain(p) and not grad:
        padding = None if p.key_mask is None else p.key_mask[:, None, None]
        scale = p.scale / p.temperature
        return Attended(
            scaled_dot_product_attention(
                p.query, p.key, p.value, attn_mask=padding, is_causal=p.causal, scale=scale
            )
        )
    if p.hides and (grad or compiling):
        p = without_hidden(p)
    queries, keys = p.query.shape[2], p.key.shape[2]
    only_causal = p.causal and queries == keys and p.mask is None and p.bias is None
    if only_causal:  # the kernel knows this one, with padding too
        bias, _ = as_bias(p.but(causal=False))
        empty = None if p.key_mask is None else p.key_mask.cumsum(dim=-1)[:, None] == 0  # (b, 1, q)
    elif not (grad or compiling or p.weights) and queries * keys > MASK_AT_ONCE:
        return _some_rows_at_a_time(p)
    else:
        bias, empty = as_bias(p)
    if p.weights and not p.lse:
        return Attended(*weighted(p.query, p.key, p.value, bias, only_causal, p.scale / p.temperature))
    output, lse = _run(p, bias, empty, only_causal, grad and not compiling)
    weights = weights_of(p.query, p.key, bias, only_causal, p.scale / p.temperature) if p.weights else None
    return Attended(output, weights, lse if p.lse else None)


def wants_grad(p: Problem) -> bool:
    """Whether a gradient may be asked for."""
    return torch.is_grad_enabled() and (p.query.requires_grad or p.key.requires_grad or p.value.requires_grad)


def _plain(p: Problem) -> bool:
    """What PyTorch's own function does right and best."""
    return (
        not (p.weights or p.lse)
        and p.mask is None
        and p.bias is None
        and p.window is None
        and p.query.shape[1] == p.key.shape[1]
        and p.query.shape[3] == p.value.shape[3]
        and (p.key_mask is None or (EMPTY_ROWS_ARE_ZERO and not p.causal))
        and (not p.causal or p.query.shape[2] == p.key.shape[2])
    )


def _some_rows_at_a_time(p: Problem) -> Attended:
    """The same without ever holding the whole bias of a rule."""
    queries, keys = p.query.shape[2], p.key.shape[2]
    step = max(256, MASK_AT_ONCE // keys)
    outputs, lses = [], []
    for start in range(0, queries, step):
        rows = slice(start, min(start + step, queries))
        bias, empty = as_bias(p, rows)
        output, lse = _run(p.but(query=p.query[:, :, rows]), bias, empty, False, False)
        outputs.append(output)
        lses.append(lse)
    return Attended(torch.cat(outputs, dim=2), lse=torch.cat(lses, dim=2) if p.lse else None)


def as_bias(
    p: Problem, rows: slice | None = None
) -> tuple[Float[Tensor, "#b #h #q k"] | None, Bool[Tensor, "#b #h #q"] | None]:
    """Everything that forbids, and the bias, as the one number that the kernel adds; and the rows that see no
    key.
    """
    allowed = p.allowed(rows)
    if allowed is None:
        return None, None
    keys = p.key.shape[2]
    if allowed.ndim != 4:
        allowed = allowed.reshape((1,) * (4 - allowed.ndim) + tuple(allowed.shape))
    if allowed.shape[3] != keys:
        allowed = allowed.expand(-1, -1, -1, keys)
    minus_infinity = p.query.new_full((), -math.inf)
    if p.bias is None:
        added = torch.where(allowed, 0.0, minus_infinity)
    else:
        bias = p.bias if rows is None or p.bias.shape[-2] == 1 else p.bias[..., rows, :]
        added = torch.where(allowed, (bias / p.temperature).to(p.query.dtype), minus_infinity)
    return added if added.stride(3) == 1 else added.contiguous(), ~allowed.any(dim=-1)


def _run(
    p: Problem,
    bias: Float[Tensor, "#b #h #q k"] | None,
    empty: Bool[Tensor, "#b #h #q"] | None,
    causal: bool,
    differentiable: bool,
) -> tuple[Float[Tensor, "b h q dv"], Float[Tensor, "b h q"]]:
    """The kernel on tensors that are laid out as it wants them."""
    batch, heads, queries, _ = p.query.shape
    kv_heads, channels = p.key.shape[1], p.value.shape[3]
    query, key, value = _same_channels(p.query, p.key, p.value)
    few = queries == 1 or (not torch.compiler.is_compiling() and p.group * queries <= FEW_ROWS)
    fold = heads != kv_heads and not causal and few
    if fold:  # the heads of a group as rows: their keys are read once
        query = query.reshape(batch, kv_heads, p.group * queries, query.shape[3])
        bias, empty = (
            fold_rows(bias, p, queries),
            None if empty is None else fold_rows(empty[..., None], p, queries),
        )
        empty = None if empty is None else empty[..., 0]
    elif heads != kv_heads and not GROUPS:
        key, value = (x.repeat_interleave(p.group, dim=1) for x in (key, value))
    scale = p.scale / p.temperature
    output, lse = flash(query, key, value, bias, empty, causal, scale, differentiable)
    if fold:
        output, lse = output.reshape(batch, heads, queries, -1), lse.reshape(batch, heads, queries)
    return (output if output.shape[3] == channels else output[..., :channels]), lse


def _same_channels(*tensors: Tensor) -> list[Tensor]:
    """Zeros fill up the fewer channels, which changes neither scores nor outputs; channels lie beside each
    other.
    """
    most = max(x.shape[3] for x in tensors)
    filled = [x if x.shape[3] == most else pad(x, (0, most - x.shape[3])) for x in tensors]
    return [x if x.stride(3) == 1 else x.contiguous() for x in filled]


def fold_rows(x: Tensor | None, p: Problem, queries: int) -> Tensor | None:
    """(b, h, q, k) → (b, g, group · q, k), also where an axis has the size 1 and stands for all."""
    if x is None or (x.shape[1] == 1 and x.shape[2] == 1):
        return x
    heads = p.query.shape[1]
    x = x.expand(-1, heads, queries, -1)
    return x.reshape(x.shape[0], heads // p.group, p.group * queries, x.shape[3])
