"""One tile of attention and its gradient: what the cheaper ways are put together from.

    output = softmax(scale · Q Kᵀ + bias) V,      lse = log Σ exp(scale · Q Kᵀ + bias)

The gradient needs only the lse of the *whole* row, not that of the tile, so tiles of one row can be
differentiated one by one (Dao et al. 2022, "FlashAttention", appendix B):

    P = exp(scale · Q Kᵀ + bias − lse),   δ = Σ dO ∘ O − dlse,   dS = P ∘ (dO Vᵀ − δ),   dQ = scale · dS K, …

On a CPU both directions run in PyTorch's fused kernel; elsewhere, and where the gradient itself is
differentiated, by the formulas. Tiles are (blocks, heads, rows, channels), key heads may be grouped, keys and
values have as many channels.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from regard.attend import pytorch
from regard.attend.lse import softmax_with_lse

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

# Before, the kernel takes shared key heads for as many as there are query heads, and reads beyond them.
_KNOWS_GROUPS = pytorch.VERSION >= (2, 9)
_fused = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_fused_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def forward(
    query: Float[Tensor, "n h q d"],
    key: Float[Tensor, "n g k d"],
    value: Float[Tensor, "n g k d"],
    bias: Float[Tensor, "#n #h q k"] | None,
    scale: float,
) -> tuple[Float[Tensor, "n h q d"], Float[Tensor, "n h q"]]:
    """Output and lse of a tile; a row whose bias is all −∞ has output 0 and lse −∞."""
    if query.device.type != "cpu":
        weights, lse = softmax_with_lse(_logits(query, key, bias, scale))
        return weights @ _repeat(value, query), lse
    if not _KNOWS_GROUPS:
        key, value = _repeat(key, query), _repeat(value, query)
    output, lse = _fused(query, key, value, 0.0, False, attn_mask=bias, scale=scale)
    if bias is not None:
        lse = lse.masked_fill(bias.amax(dim=-1) == -math.inf, -math.inf)
    return output, lse


def backward(
    grad_output: Float[Tensor, "n h q d"],
    grad_lse: Float[Tensor, "n h q"] | None,
    query: Float[Tensor, "n h q d"],
    key: Float[Tensor, "n g k d"],
    value: Float[Tensor, "n g k d"],
    output: Float[Tensor, "n h q d"],
    lse: Float[Tensor, "n h q"],
    bias: Float[Tensor, "#n #h q k"] | None,
    scale: float,
) -> tuple[Float[Tensor, "n h q d"], Float[Tensor, "n g k d"], Float[Tensor, "n g k d"]]:
    """Gradients of query, key and value from one tile; output and lse are those of the whole rows."""
    lse = lse.masked_fill(lse == -math.inf, math.inf)  # exp(−∞ − ∞) = 0: an empty row has no gradient
    if query.device.type == "cpu" and grad_lse is None and not torch.is_grad_enabled():
        return _backward(grad_output, query, key, value, output, lse, bias, scale)
    weights = torch.exp(_logits(query, key, bias, scale) - lse[..., None])  # (n, h, q, k)
    delta = (grad_output * output).sum(dim=-1)
    delta = delta if grad_lse is None else delta - grad_lse
    grad_logits = scale * weights * (grad_output @ _repeat(value, query).mT - delta[..., None])
    return (
        grad_logits @ _repeat(key, query),
        _sum_groups(grad_logits.mT @ query, key),
        _sum_groups(weights.mT @ grad_output, value),
    )


def _backward(
    grad_output: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor,
    lse: Tensor,
    bias: Tensor | None,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients by the fused kernel."""
    keys, values = key, value
    if not _KNOWS_GROUPS:
        keys, values = _repeat(key, query), _repeat(value, query)
    grads: tuple[Tensor, Tensor, Tensor] = _fused_backward(
        grad_output, query, keys, values, output, lse, 0.0, False, attn_mask=bias, scale=scale
    )
    if keys is key:
        return grads
    return grads[0], _sum_groups(grads[1], key), _sum_groups(grads[2], value)


def merge_into(
    output: Float[Tensor, "... q d"],
    lse: Float[Tensor, "... q"],
    more: Float[Tensor, "... q d"],
    more_lse: Float[Tensor, "... q"],
) -> None:
    """Add what the same queries found among other keys, in place: output moves towards `more` by its share.

    share = exp(more_lse) / (exp(lse) + exp(more_lse)) = sigmoid(more_lse − lse)
    """
    share = torch.sigmoid(more_lse - lse).masked_fill(more_lse == -math.inf, 0.0)
    output.lerp_(more, share[..., None])
    lse.copy_(torch.logaddexp(lse, more_lse))


def empty_result(query: Float[Tensor, "b h q d"]) -> tuple[Float[Tensor, "b h q d"], Float[Tensor, "b h q"]]:
    """Output and lse of rows that have seen no key yet."""
    return zeros(query), query.new_full(query.shape[:3], -math.inf)


def zeros(x: Float[Tensor, "b h n d"], kind: Tensor | None = None) -> Float[Tensor, "b h n d"]:
    """Zeros like x, the heads of a position beside each other in memory, as the kernel writes them.

    `kind` is the tensor that will be added: under torch.vmap zeros must be mapped where it is.
    """
    b, h, n, d = x.shape
    return (x if kind is None else kind).new_zeros(b, n, h, d).transpose(1, 2)


def as_bias(allowed: Bool[Tensor, "*shape"], dtype: torch.dtype) -> Float[Tensor, "*shape"]:
    """0 where allowed, −∞ elsewhere."""
    return torch.zeros(allowed.shape, dtype=dtype, device=allowed.device).masked_fill(~allowed, -math.inf)


def _logits(query: Tensor, key: Tensor, bias: Tensor | None, scale: float) -> Float[Tensor, "n h q k"]:
    logits = (query * scale) @ _repeat(key, query).mT
    return logits if bias is None else logits + bias


def _repeat(key: Tensor, query: Tensor) -> Float[Tensor, "n h k d"]:
    """Head h of the queries reads head h // group of the keys."""
    return key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)


def _sum_groups(grad: Float[Tensor, "n h k d"], key: Tensor) -> Float[Tensor, "n g k d"]:
    """What all query heads that read one key head want of it."""
    n, g, k, d = key.shape
    return grad.reshape(n, g, -1, k, d).sum(dim=2)
