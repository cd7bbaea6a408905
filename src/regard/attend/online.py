"""FlashAttention's algorithm in tiles: exact attention that never holds more than one tile of weights.

A softmax needs its denominator before the first weight, or so it seems. But a sum of exponentials can be kept
while it grows: with m the largest score so far, s the sum and a the weighted values,

    m′ = max(m, max x),    s′ = s · e^(m − m′) + Σ e^(x − m′),    a′ = a · e^(m − m′) + e^(x − m′) V

for every tile x of scores, and a / s is the output at the end. What is kept for the gradient is m + log s,
one number a row; the weights are computed again from it, tile by tile. Memory is O(n), in both directions.

Milakov & Gimelshein 2018, "Online normalizer calculation for softmax"; Dao et al. 2022, "FlashAttention",
algorithms 1 and 4. Powers of two take the place of those of e: 2^(x · log₂ e) is the same number, found
faster.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.attend.checks import check_heads, check_key_mask
from regard.attend.reference import Attended
from regard.errors import InvalidArgument

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

LOG2_E = math.log2(math.e)


def online_softmax_attention(
    query: Float[Tensor, "b h q d"],
    key: Float[Tensor, "b g k d"],
    value: Float[Tensor, "b g k dv"],
    *,
    causal: bool = False,
    key_mask: Bool[Tensor, "b k"] | None = None,
    scale: float | None = None,
    tile: int = 256,
    return_lse: bool = False,
) -> Tensor | Attended:
    """Softmax attention, computed in tiles of `tile` queries and `tile` keys.

    Arguments:
        causal: no query sees a later key. The last query lies on the last key, whatever their numbers.
        key_mask: (b, k), True = no padding.
        scale: of the scores, 1/√d if not given.
        tile: queries, and keys, that meet at a time. It changes the speed, not the result.

    Returns the output (b, h, q, dv), or with `return_lse` an `Attended` of output and lse (b, h, q). A query
    that sees no key has output 0 and lse −∞.
    Raises `InvalidArgument` if shapes or mask cannot be right.
    Memory is O(q + k) beside one tile for each head, forward and backward; float32 or wider.

    >>> query, key, value = torch.randn(3, 1, 2, 1000, 16).unbind()
    >>> exact = torch.nn.functional.scaled_dot_product_attention(query, key, value)
    >>> torch.allclose(online_softmax_attention(query, key, value), exact, atol=1e-6)
    True
    """
    check_heads(query, key, value)
    if isinstance(tile, bool) or not isinstance(tile, int) or tile < 1:
        raise InvalidArgument(f"tile must be a number of positions ≥ 1; got {tile!r}.")
    if key_mask is not None:
        check_key_mask(key_mask, query.shape[0], key.shape[2])
        key, value = (x.masked_fill(~key_mask[:, None, :, None], 0) for x in (key, value))
    scale = 1 / math.sqrt(max(query.shape[3], 1)) if scale is None else scale
    wide = torch.promote_types(query.dtype, torch.float32)
    group = query.shape[1] // max(key.shape[1], 1)
    key, value = (x.repeat_interleave(group, dim=1) if group > 1 else x for x in (key, value))
    tensors = (x.to(wide) for x in (query, key, value))
    output, lse = _Online.apply(*tensors, key_mask, causal, scale, tile)  # type: ignore[no-untyped-call]
    output = output.to(query.dtype)
    return Attended(output, lse=lse) if return_lse else output


def forward(
    query: Float[Tensor, "b h q d"],
    key: Float[Tensor, "b h k d"],
    value: Float[Tensor, "b h k dv"],
    key_mask: Bool[Tensor, "b k"] | None,
    causal: bool,
    scale: float,
    tile: int,
) -> tuple[Float[Tensor, "b h q dv"], Float[Tensor, "b h q"]]:
    """Output and lse: for each tile of queries, once along the keys."""
    output = query.new_zeros(*query.shape[:3], value.shape[3])
    lse = query.new_full(query.shape[:3], -math.inf)
    lowest = torch.finfo(query.dtype).min  # the largest score so far, before there is one
    for rows in tiles(query.shape[2], tile):
        top = query.new_full(lse[:, :, rows, None].shape, lowest)  # (b, h, rows, 1)
        total = torch.zeros_like(top)
        sums = torch.zeros_like(output[:, :, rows])  # (b, h, rows, dv)
        for cols in visible(rows, query.shape[2], key.shape[2], causal, tile):
            scores = scores_of(query, key, rows, cols, key_mask, causal, scale)
            higher = torch.maximum(top, scores.amax(dim=-1, keepdim=True))
            weights = scores.sub_(higher).exp2_()  # (b, h, rows, cols), not yet divided by their sum
            shrink = torch.exp2(top - higher)  # what was found so far counts for less
            total = total * shrink + weights.sum(dim=-1, keepdim=True)
            sums = sums * shrink + weights @ value[:, :, cols]
            top = higher
        output[:, :, rows] = sums / total.masked_fill(total == 0, 1.0)
        lse[:, :, rows] = ((top + total.log2()) / LOG2_E)[..., 0]
    return output, lse


def backward(
    grad_output: Float[Tensor, "b h q dv"],
    grad_lse: Float[Tensor, "b h q"] | None,
    query: Float[Tensor, "b h q d"],
    key: Float[Tensor, "b h k d"],
    value: Float[Tensor, "b h k dv"],
    output: Float[Tensor, "b h q dv"],
    lse: Float[Tensor, "b h q"],
    key_mask: Bool[Tensor, "b k"] | None,
    causal: bool,
    scale: float,
    tile: int,
) -> tuple[Float[Tensor, "b h q d"], Float[Tensor, "b h k d"], Float[Tensor, "b h k dv"]]:
    """Gradients of query, key and value, from the weights recomputed in tiles.

    With P the weights:  dV = Pᵀ dO,   dS = P ∘ (dO Vᵀ − δ),   dQ = scale · dS K,   dK = scale · dSᵀ Q,
    where δ = Σ dO ∘ O − dlse is what the division by the sum takes back.
    """
    grad_query, grad_key, grad_value = (grad_output.new_zeros(x.shape) for x in (query, key, value))
    delta = (grad_output * output).sum(dim=-1, keepdim=True)
    delta = delta if grad_lse is None else delta - grad_lse[..., None]
    lse2 = lse.masked_fill(lse == -math.inf, math.inf)[..., None] * LOG2_E  # an empty row: 2^(−∞) = 0
    for rows in tiles(query.shape[2], tile):
        grad_rows = grad_output[:, :, rows]
        for cols in visible(rows, query.shape[2], key.shape[2], causal, tile):
            scores = scores_of(query, key, rows, cols, key_mask, causal, scale)
            weights = torch.exp2(scores - lse2[:, :, rows])  # (b, h, rows, cols)
            grad_scores = weights * (grad_rows @ value[:, :, cols].mT - delta[:, :, rows]) * scale
            grad_query[:, :, rows] += grad_scores @ key[:, :, cols]
            grad_key[:, :, cols] += grad_scores.mT @ query[:, :, rows]
            grad_value[:, :, cols] += weights.mT @ grad_rows
    return grad_query, grad_key, grad_value


def tiles(length: int, tile: int, stop: int | None = None) -> Iterator[slice]:
    """0 … length (or … stop) in slices of `tile`."""
    stop = length if stop is None else min(stop, length)
    for start in range(0, stop, tile):
        yield slice(start, min(start + tile, stop))


def visible(rows: slice, queries: int, keys: int, causal: bool, tile: int) -> Iterator[slice]:
    """The tiles of keys that some rows see: all, or with causality those up to the last row's position."""
    return tiles(keys, tile, rows.stop + keys - queries if causal else None)


def scores_of(
    query: Tensor,
    key: Tensor,
    rows: slice,
    cols: slice,
    key_mask: Bool[Tensor, "b k"] | None,
    causal: bool,
    scale: float,
) -> Float[Tensor, "b h rows cols"]:
    """One tile of scores, in powers of two, −∞ where a query may not see a key."""
    scores = (query[:, :, rows] * (scale * LOG2_E)) @ key[:, :, cols].mT
    offset = key.shape[2] - query.shape[2]
    if causal and cols.stop > rows.start + offset + 1:  # the diagonal passes through this tile
        position = torch.arange(rows.start, rows.stop, device=query.device)[:, None] + offset
        scores = scores.masked_fill(
            torch.arange(cols.start, cols.stop, device=query.device) > position, -math.inf
        )
    if key_mask is not None:
        scores = scores.masked_fill(~key_mask[:, None, None, cols], -math.inf)
    return scores


class _Online(torch.autograd.Function):
    """Ties the two directions together. The backward is differentiable, so there is a second derivative."""

    generate_vmap_rule = True

    @staticmethod
    def forward(*inputs: Any) -> tuple[Tensor, Tensor]:
        return forward(*inputs)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        query, key, value, key_mask, ctx.causal, ctx.scale, ctx.tile = inputs
        ctx.save_for_backward(query, key, value, *output, key_mask)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor | None, grad_lse: Tensor | None) -> Any:
        query, key, value, output, lse, key_mask = ctx.saved_tensors
        given = torch.zeros_like(output) if grad_output is None else grad_output
        rule = (key_mask, ctx.causal, ctx.scale, ctx.tile)
        grads = backward(given, grad_lse, query, key, value, output, lse, *rule)
        return (*grads, None, None, None, None)
