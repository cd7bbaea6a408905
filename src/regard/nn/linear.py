"""y = x Wᵀ + b, by oneDNN's product where PyTorch would take a slower one.

For float32 on a CPU PyTorch asks MKL, which leaves half the speed of many processors unused (measured on an
AMD EPYC: oneDNN takes 0.45 of the time, forward and backward). PyTorch carries oneDNN with it, for its
compiler; the operator is called directly here. Both compute the same sums, in another order. Everything else
goes to torch.nn.functional.linear: other dtypes and devices, small products, compilation, autocast and
transforms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attend.problem import compiled_or_transformed

if TYPE_CHECKING:
    from jaxtyping import Float

WORTH_IT = 1 << 24  # multiplications; below, calling it costs more than it saves

_onednn: Any = getattr(torch.ops.mkldnn, "_linear_pointwise", None)


class Linear(nn.Linear):
    """torch.nn.Linear with the faster product: same parameters, same initialisation, same meaning."""

    def forward(self, input: Float[Tensor, "*n i"]) -> Float[Tensor, "*n o"]:
        """x Wᵀ + b."""
        return linear(input, self.weight, self.bias)


def linear(
    x: Float[Tensor, "*n i"], weight: Float[Tensor, "o i"], bias: Float[Tensor, " o"] | None = None
) -> Float[Tensor, "*n o"]:
    """x Wᵀ + b, differentiable any number of times.

    Example:
        >>> import torch
        >>> linear(torch.ones(2, 3), torch.ones(4, 3)).shape
        torch.Size([2, 4])
    """
    if not _suits(x, weight, bias):
        return F.linear(x, weight, bias)
    if torch.is_grad_enabled() and (
        x.requires_grad or weight.requires_grad or (bias is not None and bias.requires_grad)
    ):
        result: Tensor = _Linear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
        return result
    return _product(x, weight, bias)


def _suits(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    if compiled_or_transformed():
        return False
    tensors = (x, weight) if bias is None else (x, weight, bias)
    return (
        _onednn is not None
        and x.numel() * weight.shape[0] >= WORTH_IT
        and x.shape[-1] == weight.shape[-1]
        and all(type(t) in (Tensor, nn.Parameter) for t in tensors)
        and all(t.device.type == "cpu" and t.dtype == torch.float32 for t in tensors)
        and x.layout == weight.layout == torch.strided
        and bool(torch.backends.mkldnn.enabled)
        and not torch.is_autocast_enabled("cpu")
        and not torch._C._is_tracing()
    )


def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    result: Tensor = _onednn(x, weight, bias, "none", [], "")
    return result


class _Linear(torch.autograd.Function):
    """Its gradients are products of the same kind."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _product(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, d_result: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        rows = d_result.flatten(0, -2)  # (n, o)
        d_x = linear(d_result, weight.t()) if ctx.needs_input_grad[0] else None
        d_weight = linear(rows.t(), x.flatten(0, -2).t()) if ctx.needs_input_grad[1] else None
        return d_x, d_weight, rows.sum(dim=0) if ctx.needs_input_grad[2] else None
