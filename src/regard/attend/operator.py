"""Windowed and block-sparse attention as one operator of PyTorch, with its gradient.

A compiled or exported graph holds one node, `regard::patterned`, and not the loop over every band or block.
The gradient recomputes the weights from the lse (kernel.py), so nothing of the size of the weights is kept
between the directions. Where the gradient is itself differentiated, the same loop runs in differentiable
operations.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.attend import bands, blocks, kernel
from regard.attend.reference import Attended

if TYPE_CHECKING:
    from jaxtyping import Bool, Float


def attend(
    query: Float[Tensor, "b h q d"],
    key: Float[Tensor, "b g k d"],
    value: Float[Tensor, "b g k dv"],
    key_mask: Bool[Tensor, "b k"] | None,
    block_mask: Bool[Tensor, "b h r c"] | None,
    numbers: tuple[int, ...],
    scale: float | None,
    return_lse: bool,
) -> Tensor | Attended:
    """Attention along a pattern: the fields of `blocks.Pattern` where there is a block mask, else of
    `bands.Window`.

    Computed in float32 or wider. Padding is set to zero first, so that nothing in it can matter.
    """
    wide = torch.promote_types(query.dtype, torch.float32)
    channels = max(
        query.shape[3], value.shape[3], 1
    )  # the fused kernel wants as many channels in values as in keys
    scale = 1 / math.sqrt(max(query.shape[3], 1)) if scale is None else scale
    if key_mask is not None:
        key_mask = key_mask.expand(query.shape[0], -1)
        key, value = (x.masked_fill(~key_mask[:, None, :, None], 0) for x in (key, value))
    q, k, v = (_channels_last(x.to(wide), channels) for x in (query, key, value))
    if block_mask is not None:
        block_mask = block_mask.expand(query.shape[0], -1, -1, -1)
    inputs = (q, k, v, key_mask, block_mask, list(numbers), scale)
    output, lse = _Patterned.apply(*inputs)  # type: ignore[no-untyped-call]
    output = output[..., : value.shape[3]].to(query.dtype)
    return Attended(output, lse=lse) if return_lse else output


def _channels_last(x: Float[Tensor, "b h n d"], channels: int) -> Float[Tensor, "b h n channels"]:
    """As many channels as asked for, beside each other in memory. Zeros change neither scores nor outputs."""
    if x.shape[3] < channels:
        return torch.nn.functional.pad(x, (0, channels - x.shape[3]))
    return x if x.stride(3) == 1 else x.contiguous()


# PyTorch 2.6 does not read the signatures themselves where a list is among the arguments.
_FORWARD = (
    "(Tensor query, Tensor key, Tensor value, Tensor? key_mask, Tensor? block_mask,"
    " int[] numbers, float scale) -> (Tensor, Tensor)"
)
_BACKWARD = (
    "(Tensor grad_output, Tensor? grad_lse, Tensor query, Tensor key, Tensor value, Tensor output,"
    " Tensor lse, Tensor? key_mask, Tensor? block_mask,"
    " int[] numbers, float scale) -> (Tensor, Tensor, Tensor)"
)


@torch.library.custom_op("regard::patterned", mutates_args=(), schema=_FORWARD)
def _forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_mask: Tensor | None,
    block_mask: Tensor | None,
    numbers: list[int],
    scale: float,
) -> tuple[Tensor, Tensor]:
    return _pattern(query, key, block_mask, numbers).attend(query, key, value, key_mask, scale)


@torch.library.custom_op("regard::patterned_backward", mutates_args=(), schema=_BACKWARD)
def _backward(
    grad_output: Tensor,
    grad_lse: Tensor | None,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor,
    lse: Tensor,
    key_mask: Tensor | None,
    block_mask: Tensor | None,
    numbers: list[int],
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    pattern = _pattern(query, key, block_mask, numbers)
    grad_output = _channels_last(grad_output, grad_output.shape[3])
    return pattern.attend_backward(grad_output, grad_lse, query, key, value, output, lse, key_mask, scale)


def _pattern(
    query: Tensor, key: Tensor, block_mask: Tensor | None, numbers: list[int]
) -> bands.Window | blocks.Pattern:
    if block_mask is None:
        left, right, global_tokens, causal = numbers
        return bands.Window(query.shape[2], key.shape[2], left, right, global_tokens, bool(causal))
    size, causal = numbers
    return blocks.Pattern(block_mask, size, bool(causal))


@_forward.register_fake
def _(query: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return kernel.empty_result(query)


@_backward.register_fake
def _(
    grad_output: Tensor, grad_lse: Tensor | None, query: Tensor, key: Tensor, value: Tensor, *_: Any
) -> Any:
    return tuple(kernel.zeros(x) for x in (query, key, value))


class _Patterned(torch.autograd.Function):
    """Ties the two operators together, for autograd and for torch.func."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_mask: Tensor | None,
        block_mask: Tensor | None,
        numbers: list[int],
        scale: float,
    ) -> tuple[Tensor, Tensor]:
        result: tuple[Tensor, Tensor] = _forward(query, key, value, key_mask, block_mask, numbers, scale)
        return result

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        query, key, value, key_mask, block_mask, ctx.numbers, ctx.scale = inputs
        ctx.save_for_backward(query, key, value, *output, key_mask, block_mask)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor | None, grad_lse: Tensor | None) -> Any:
        query, key, value, output, lse, key_mask, block_mask = ctx.saved_tensors
        given = torch.zeros_like(output) if grad_output is None else grad_output
        arguments = (given, grad_lse, query, key, value, output, lse, key_mask)
        if torch.is_grad_enabled():  # to be differentiated again
            grads = _pattern(query, key, block_mask, ctx.numbers).attend_backward(*arguments, ctx.scale)
        else:
            grads = _backward(*arguments, block_mask, ctx.numbers, ctx.scale)
        return (*grads, None, None, None, None)


def _fold_into_batch(operator: Any) -> Any:
    """Under vmap the mapped axis is joined with the batch: every tensor begins with a batch axis."""

    def rule(info: Any, in_dims: tuple[int | None, ...], *arguments: Any) -> tuple[Any, Any]:
        def fold(x: Any, dim: int | None) -> Any:
            if not isinstance(x, Tensor):
                return x
            x = x.expand(info.batch_size, *x.shape) if dim is None else x.movedim(dim, 0)
            return x.flatten(0, 1)

        results = operator(*(fold(x, dim) for x, dim in zip(arguments, in_dims, strict=True)))
        shape = (info.batch_size, -1)
        return tuple(x.reshape(*shape, *x.shape[1:]) for x in results), (0,) * len(results)

    return rule


_forward.register_vmap(_fold_into_batch(_forward))
_backward.register_vmap(_fold_into_batch(_backward))
