"""The path through PyTorch's fused kernel for CPUs, and its gradients.

The kernel (FlashAttention in tiles, Dao et al. 2022) gives the log-sum-exp of every row beside the output, so
lse costs nothing, and weights cost one more product (weights.py). What it does not do is done around it:

- a causal mask over unequal lengths, windows, rules and biases become the one bias that it adds (−∞ = not
allowed); - channels of unequal number are filled up with zeros, grouped heads of a few queries become rows;
- rows that see no key get output 0 and lse −∞, whatever the kernel of this version makes of them;
- the gradient of lse, which it ignores, enters as one more channel: the kernel's backward needs the sum over
channels
  of dO ∘ O only, and a channel with dO = 1, O = −dlse and V = 0 adds −dlse to it;
- gradients that are to be differentiated again are computed by the formula.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from regard.attend import formula
from regard.attend.hidden import without_hidden
from regard.attend.problem import Problem, transformed
from regard.attend.reference import Attended
from regard.attend.weights import weights_of

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

_forward: Any = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu", None)
_backward: Any = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu_backward", None)

FEW_ROWS = 64  # of a group together: that many are one tile of the kernel
MASK_AT_ONCE = 1 << 24  # numbers in a mask


def takes(p: Problem) -> bool:
    """On a CPU, whatever the kernel can be brought to do: no softcap, no dropout, no limit of the
    temperature.
    """
    return (
        p.query.device.type == "cpu"
        and _forward is not None
        and p.softcap is None
        and not p.dropout_p
        and 0 < p.temperature < math.inf
        and not (p.bias is not None and p.bias.requires_grad)
        and 0 not in p.query.shape
        and 0 not in p.key.shape
        and 0 not in p.value.shape
        and not transformed()
        and not (torch.compiler.is_compiling() and (p.weights or (p.lse and wants_grad(p))))
    )


def attend(problem: Problem) -> Attended:
    """Output, and weights and lse where wanted."""
    p = problem
    grad = wants_grad(p)
    compiling = torch.compiler.is_compiling()
    if p.hides and (grad or compiling):
        p = without_hidden(p)
    queries, keys = p.query.shape[2], p.key.shape[2]
    only_causal = p.causal and queries == keys and p.mask is None and p.bias is None
    if only_causal:  # the kernel knows this one, with padding too
        bias = as_bias(p._replace(causal=False))
        empty = None if p.key_mask is None else p.key_mask.cumsum(dim=-1)[:, None] == 0  # (b, 1, q)
    elif queries * keys > MASK_AT_ONCE and not (grad or compiling or p.weights):
        return _some_rows_at_a_time(p)
    else:
        bias = as_bias(p)
        empty = None if bias is None else bias.amax(dim=-1) == -math.inf  # (b, h, q), broadcasting
    output, lse = _run(p, bias, empty, only_causal, grad and not compiling)
    weights = weights_of(p.query, p.key, bias, only_causal, p.scale / p.temperature) if p.weights else None
    return Attended(output, weights, lse if p.lse else None)


def wants_grad(p: Problem) -> bool:
    return torch.is_grad_enabled() and (p.query.requires_grad or p.key.requires_grad or p.value.requires_grad)


def _some_rows_at_a_time(p: Problem) -> Attended:
    """The same without ever holding the whole bias of a rule."""
    queries, keys = p.query.shape[2], p.key.shape[2]
    step = max(256, MASK_AT_ONCE // keys)
    outputs, lses = [], []
    for start in range(0, queries, step):
        rows = slice(start, min(start + step, queries))
        bias = as_bias(p, rows)
        empty = None if bias is None else bias.amax(dim=-1) == -math.inf
        output, lse = _run(p._replace(query=p.query[:, :, rows]), bias, empty, False, False)
        outputs.append(output)
        lses.append(lse)
    return Attended(torch.cat(outputs, dim=2), lse=torch.cat(lses, dim=2) if p.lse else None)


def as_bias(p: Problem, rows: slice | None = None) -> Float[Tensor, "#b #h #q k"] | None:
    """Everything that forbids, and the bias, as the one number that the kernel adds; None where nothing is
    added.
    """
    allowed = p.allowed(rows)
    if allowed is None:
        return None
    if p.bias is None:
        added = p.query.new_zeros(allowed.shape)
    else:
        added = p.bias if rows is None or p.bias.shape[-2] == 1 else p.bias[..., rows, :]
        added = (added / p.temperature).to(p.query.dtype)
    added = added.masked_fill(~allowed, -math.inf)
    added = added.reshape((1,) * (4 - added.ndim) + tuple(added.shape))
    keys = p.key.shape[2]
    return added if added.shape[3] == keys else added.expand(-1, -1, -1, keys).contiguous()


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
    fold = heads != kv_heads and not causal and p.group * queries <= FEW_ROWS
    if fold:  # the heads of a group as rows: their keys are read once
        query = query.reshape(batch, kv_heads, p.group * queries, query.shape[3])
        bias, empty = (
            fold_rows(bias, p, queries),
            None if empty is None else fold_rows(empty[..., None], p, queries),
        )
        empty = None if empty is None else empty[..., 0]
    elif heads != kv_heads and not _KERNEL_GROUPS:
        key, value = (x.repeat_interleave(p.group, dim=1) for x in (key, value))
    scale = p.scale / p.temperature
    if differentiable:
        output, lse = _Fused.apply(query, key, value, bias, empty, causal, scale)  # type: ignore[no-untyped-call]
    else:
        output, lse = _forward(query, key, value, 0.0, causal, attn_mask=bias, scale=scale)
        if empty is not None and (torch.compiler.is_compiling() or bool(empty.any())):
            output, lse = output.masked_fill(empty[..., None], 0.0), lse.masked_fill(empty, -math.inf)
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


class _Fused(torch.autograd.Function):
    """The kernel, differentiable in output and lse, any number of times."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        bias: Tensor | None,
        empty: Tensor | None,
        causal: bool,
        scale: float,
    ) -> tuple[Tensor, Tensor]:
        output, lse = _forward(query, key, value, 0.0, causal, attn_mask=bias, scale=scale)
        if empty is not None:
            output, lse = output.masked_fill(empty[..., None], 0.0), lse.masked_fill(empty, -math.inf)
        ctx.save_for_backward(query, key, value, bias, output, lse)
        ctx.causal, ctx.scale = causal, scale
        ctx.set_materialize_grads(False)
        return output, lse

    @staticmethod
    def backward(ctx: Any, d_output: Tensor | None, d_lse: Tensor | None) -> tuple[Tensor | None, ...]:
        query, key, value, bias, output, lse = ctx.saved_tensors
        if torch.is_grad_enabled():
            grads = _by_formula(query, key, value, bias, ctx.causal, ctx.scale, d_output, d_lse)
            return (*grads, None, None, None, None)
        d_output = torch.zeros_like(output) if d_output is None else d_output
        if d_lse is not None:  # one more channel
            query, key, value = (pad(x, (0, 1)) for x in (query, key, value))
            d_output = pad(d_output, (0, 1), value=1.0)
            output = torch.cat([output, -d_lse[..., None].to(output.dtype)], dim=-1)
        lse = lse.masked_fill(lse == -math.inf, math.inf)  # exp(−∞ − ∞) = 0: an empty row has no gradient
        d_output = d_output if d_output.stride(3) == 1 else d_output.contiguous()
        arguments = (d_output, query, key, value, output, lse, 0.0, ctx.causal)
        grads = _backward(*arguments, attn_mask=bias, scale=ctx.scale)
        if d_lse is not None:
            grads = tuple(x[..., :-1] for x in grads)
        return (*grads, None, None, None, None)


def _by_formula(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    causal: bool,
    scale: float,
    d_output: Tensor | None,
    d_lse: Tensor | None,
) -> tuple[Tensor, ...]:
    """The gradients in operations that can be differentiated again."""
    p = Problem(query, key, value, causal, None, None, None, bias, scale, 1.0, None, 0.0, False, True)
    result = formula.attend(p)
    pairs = [
        (x, d) for x, d in ((result.output, d_output), (result.lse, d_lse)) if x is not None and d is not None
    ]
    results, grads = zip(*pairs, strict=True)
    return torch.autograd.grad(results, (query, key, value), grads, create_graph=True, allow_unused=True)


def _kernel_groups() -> bool:
    """Whether the kernel of this version lets several query heads read one key head."""
    if _forward is None:
        return False
    query, key = torch.arange(4.0).view(1, 4, 1, 1), torch.arange(4.0).view(1, 2, 2, 1)
    try:
        with torch.no_grad():
            grouped = _forward(query, key, key)[0]
            return torch.allclose(grouped, _forward(query, *(2 * (key.repeat_interleave(2, dim=1),)))[0])
    except RuntimeError:
        return False


_KERNEL_GROUPS = _kernel_groups()
