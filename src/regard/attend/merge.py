"""Attention over two ranges of keys, put together from attention over each.

    lse = log Σᵢ exp(lseᵢ),    output = Σᵢ exp(lseᵢ − lse) · outputᵢ

What a ring of devices, a cache in pieces, or a decoder with many keys and few queries needs. Exact; the order
of the parts does not matter. Milakov and Gimelshein 2018, "Online normalizer calculation for softmax".
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from regard.attend.reference import Attended
from regard.errors import InvalidArgument

if TYPE_CHECKING:
    from jaxtyping import Float

Partial = Attended | tuple[Tensor, Tensor]


def merge(*partials: Partial) -> Attended:
    """The attention over all keys, from attentions of the same queries over parts of the keys.

    Arguments:
        partials: results of `attention(..., return_lse=True)`, or pairs (output, lse): (b, h, q, dv) and (b,
            h, q).

    Returns an `Attended` of output and lse, which can be merged further. A part without an allowed key (lse
    −∞) takes no part; a row without any has output 0 and lse −∞. Differentiable in outputs and lses.
    Raises `InvalidArgument` if there is no part, a part has no lse, or shapes differ.

    >>> query, key, value = torch.randn(3, 1, 2, 10, 8).unbind()
    >>> ranges = slice(0, 4), slice(4, 10)
    >>> parts = [regard.attention(query, key[:, :, s], value[:, :, s], return_lse=True) for s in ranges]
    >>> torch.allclose(merge(*parts).output, regard.attention(query, key, value), atol=1e-6)
    True
    """
    pairs = [_pair(partial) for partial in partials]
    if not pairs:
        raise InvalidArgument("merge needs at least one partial attention; got none.")
    shape = pairs[0][0].shape
    for output, lse in pairs:
        if output.shape != shape or lse.shape != shape[:-1]:
            raise InvalidArgument(
                f"all partial attentions must have outputs {tuple(shape)} and lses {tuple(shape[:-1])}; "
                f"got {tuple(output.shape)} and {tuple(lse.shape)}."
            )
    return merge_stacked(torch.stack([output for output, _ in pairs]), torch.stack([lse for _, lse in pairs]))


def merge_stacked(output: Float[Tensor, "parts *bhq dv"], lse: Float[Tensor, parts * bhq]) -> Attended:
    """The same for parts along a first axis."""
    some = lse > -math.inf
    top = lse.detach().amax(dim=0)
    top = top.masked_fill(top == -math.inf, 0.0)
    share = torch.exp(lse - top)  # (parts, …); 0 for an empty part
    total = share.sum(dim=0)
    empty = total == 0
    total = total.masked_fill(empty, 1.0)
    parts = output.masked_fill(~some[..., None], 0.0).to(share.dtype) * share[..., None]
    merged = (parts.sum(dim=0) / total[..., None]).to(output.dtype)
    return Attended(merged, lse=(total.log() + top).masked_fill(empty, -math.inf))


def _pair(partial: Partial) -> tuple[Tensor, Tensor]:
    output, lse = (partial.output, partial.lse) if isinstance(partial, Attended) else partial
    if lse is None:
        raise InvalidArgument(
            "a partial attention must have its lse; got None. Ask for it with return_lse=True."
        )
    return output, lse
