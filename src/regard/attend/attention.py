"""Attention, with everything that composes with it; exact, by the fastest path that is.

    output = softmax(mask((softcap · tanh(scale · Q Kᵀ / softcap) + bias) / temperature)) V

The first path that takes a problem computes it, and all give the same:

| path | takes | memory |
| --- | --- | --- |
| patterned | CPU: windows, global tokens, blocks, where little is seen; causal, padding, groups, lse | O(n) |
| split | CPU: few queries, many keys, and cores to spare (decoding) | O(n) |
| fused | CPU: causal, windows, masks, bias, groups, weights, lse; gradients of any order | O(n) |
| elsewhere | other devices: causal, windows, masks, bias, groups | O(n) |
| formula | everything: softcap, dropout, temperatures 0 and ∞, transforms of functions | O(n²) |

Vaswani et al. 2017, "Attention Is All You Need", §3.2.1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from regard.attend import elsewhere, formula, fused, hidden, patterned, split
from regard.attend.checks import (
    check_bias,
    check_heads,
    check_key_mask,
    check_mask,
    check_numbers,
    check_window,
)
from regard.attend.problem import Problem, compiled_or_transformed, default_scale, simplify
from regard.attend.reference import Attended

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

    from regard.attend.mask import Mask

__all__ = ["Attended", "attention"]


class Path(NamedTuple):
    """A way to compute attention."""

    takes: Callable[[Problem], bool]
    attend: Callable[[Problem], Attended]


PATHS = (
    Path(patterned.takes, patterned.attend),
    Path(split.takes, split.attend),
    Path(fused.takes, fused.attend),
    Path(elsewhere.takes, elsewhere.attend),
    Path(formula.takes, formula.attend),
)


def attention(
    query: Float[Tensor, "b h q d"],
    key: Float[Tensor, "b g k d"],
    value: Float[Tensor, "b g k dv"],
    *,
    mask: Bool[Tensor, "*bh q k"] | Mask | None = None,
    bias: Float[Tensor, "*bh q k"] | None = None,
    key_mask: Bool[Tensor, "b k"] | None = None,
    causal: bool = False,
    window: tuple[int | None, int | None] | None = None,
    scale: float | None = None,
    temperature: float = 1.0,
    softcap: float | None = None,
    dropout_p: float = 0.0,
    training: bool = False,
    return_weights: bool = False,
    return_lse: bool = False,
) -> Tensor | Attended:
    """Scaled dot-product attention: softmax(QKᵀ / √d) V, exact.

    Arguments:
        query, key, value: (batch, heads, length, channels), of one floating dtype. There may be fewer heads
            of keys: query head h reads key head h // (heads / kv_heads). Values may have channels of
            their own.
        mask: who may attend to whom, True = may: a boolean tensor (q, k) or (b, h, q, k), or a rule of
            `regard.masks`.
        bias: added to the scores, (q, k) or (b, h, q, k); −∞ forbids.
        key_mask: (b, k), True = no padding.
        causal: no query sees a later key. The last query lies on the last key, whatever their numbers.
        window: keys (left, right) that a query sees on either side of its own, inclusive; None: no limit.
        scale: of the scores, 1/√d if not given.
        temperature: divides the logits, ≥ 0. At 0 the largest share all weight, at ∞ all allowed keys do.
        softcap: c bounds the scaled scores to ±c, by c · tanh(score / c), before the bias.
        dropout_p: share of the weights that is dropped in the output, only if `training`.
        return_weights: also give the weights (b, h, q, k), before dropout. O(q · k) memory.
        return_lse: also give the log-sum-exp of the logits (b, h, q), float32 or wider; −∞ if empty.

    Returns the output (b, h, q, dv), or an `Attended` of output, weights and lse if one is asked for.
    All that forbids is and-ed. A row with no allowed key has output 0, weights 0, lse −∞, gradients 0. What
    no query may see, be it not-a-number, reaches no output and no gradient. Softmax is in float32 or wider.
    Raises `InvalidArgument` if shapes, dtypes or numbers cannot be right.

    >>> query, key, value = torch.randn(3, 1, 8, 100, 64).unbind()
    >>> attention(query, key, value, causal=True).shape
    torch.Size([1, 8, 100, 64])
    >>> output, weights, lse = attention(query, key, value, window=(4, 0), return_weights=True)
    >>> weights[0, 0, 50].count_nonzero().item()
    5
    """
    kind = query.device.type
    if kind != "meta" and torch.is_autocast_enabled(
        kind
    ):  # as PyTorch's own would; the rest stays as precise as it is
        dtype = torch.get_autocast_dtype(kind)
        query, key, value = (x if x.dtype == torch.float64 else x.to(dtype) for x in (query, key, value))
        with torch.autocast(kind, enabled=False):
            return attention(
                query,
                key,
                value,
                mask=mask,
                bias=bias,
                key_mask=key_mask,
                causal=causal,
                window=window,
                scale=scale,
                temperature=temperature,
                softcap=softcap,
                dropout_p=dropout_p,
                training=training,
                return_weights=return_weights,
                return_lse=return_lse,
            )
    check_heads(query, key, value)
    shape = (query.shape[0], query.shape[1], query.shape[2], key.shape[2])
    if mask is not None:
        check_mask(mask, shape)
    if bias is not None:
        check_bias(bias, shape)
    if key_mask is not None:
        check_key_mask(key_mask, shape[0], shape[3])
    if window is not None:
        check_window(window)
    if not (scale is None and temperature == 1 and softcap is None and dropout_p == 0):
        check_numbers(scale, temperature, softcap, dropout_p)

    problem = Problem(
        query,
        key,
        value,
        causal,
        window,
        key_mask,
        mask,
        bias,
        default_scale(query.shape[3]) if scale is None else scale,
        temperature,
        softcap,
        dropout_p if training else 0.0,
        return_weights,
        return_lse,
    )
    result = attend(simplify(problem))
    return result if return_weights or return_lse else result.output


def attend(problem: Problem) -> Attended:
    """The result by the first path that takes the problem, and without what a mask hides."""
    for path in PATHS:
        if path.takes(problem):
            break
    result = path.attend(problem)
    if not (problem.causal or problem.hides):  # every query sees every key
        return result
    observable = result.output.device.type == "cpu" and type(result.output) is Tensor
    if observable and not compiled_or_transformed() and hidden.suspicious(problem, result):
        return hidden.repaired(problem, path.attend, result)
    return result
