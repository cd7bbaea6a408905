"""PyTorch's fused kernel for CPUs as a function of output and lse that can be differentiated any number of
times.

    output, lse = flash(query, key, value, bias, empty, causal, scale)

The kernel itself has no gradient of lse and no second derivative. The gradient of lse enters as one more
channel: the backward kernel reads the output only in the sum over channels of dO ∘ O, and a channel with dO =
1, O = −dlse and V = 0 adds −dlse to it. A gradient that is to be differentiated again is computed by the
formula.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from regard.attend import formula
from regard.attend.problem import Problem

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

_forward: Any = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu", None)
_backward: Any = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu_backward", None)


def flash(
    query: Float[Tensor, "b h q d"],
    key: Float[Tensor, "b g k d"],
    value: Float[Tensor, "b g k d"],
    bias: Float[Tensor, "#b #h #q k"] | None,
    empty: Bool[Tensor, "#b #h #q"] | None,
    causal: bool,
    scale: float,
    differentiable: bool,
) -> tuple[Float[Tensor, "b h q d"], Float[Tensor, "b h q"]]:
    """Output and lse; 0 and −∞ for the rows that are `empty`, whatever the kernel of this version makes of
    them.
    """
    if differentiable:
        result: tuple[Tensor, Tensor] = _Flash.apply(query, key, value, bias, empty, causal, scale)  # type: ignore[no-untyped-call]
        return result
    output, lse = _forward(query, key, value, 0.0, causal, attn_mask=bias, scale=scale)
    if empty is not None and (torch.compiler.is_compiling() or bool(empty.any())):
        output, lse = output.masked_fill(empty[..., None], 0.0), lse.masked_fill(empty, -math.inf)
    return output, lse


class _Flash(torch.autograd.Function):
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


def _groups() -> bool:
    """Whether the kernel of this version lets several query heads read one key head."""
    query, key = torch.arange(4.0).view(1, 4, 1, 1), torch.arange(4.0).view(1, 2, 2, 1)
    repeated = key.repeat_interleave(2, dim=1)
    try:
        return torch.allclose(_forward(query, key, key)[0], _forward(query, repeated, repeated)[0])
    except RuntimeError:
        return False


def _empty_rows_are_zero() -> bool:
    """Whether PyTorch's own function gives 0 for a row that sees no key."""
    x, nobody = torch.ones(1, 1, 2, 2), torch.zeros(1, 1, 1, 2, dtype=torch.bool)
    return not bool(scaled_dot_product_attention(x, x, x, attn_mask=nobody).any())


with torch.no_grad():
    EXISTS = _forward is not None
    GROUPS = EXISTS and _groups()
    EMPTY_ROWS_ARE_ZERO = _empty_rows_are_zero()
