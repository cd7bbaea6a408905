"""Positions as modules: added to the embeddings, or acting inside attention.

    added       x_t + P[t]                           SinusoidalPositions, LearnedPositions
    rotating    q_i ← R(i) q_i,  k_j ← R(j) k_j      RotaryPositions
    biasing     logits_ij + b(h, j − i)              Alibi, RelativePositions

The mathematics is in regard.attend.positions; here are the parameters, and what a module must check.
Sources: Vaswani et al. 2017, §3.5; Su et al. 2021 (rotary); Press et al. 2022 (ALiBi); Raffel et al. 2020
(relative).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.errors import InvalidArgument

if TYPE_CHECKING:
    from jaxtyping import Float, Int

    from regard.nn.placement import Placement


def sinusoidal(index: Tensor, d: int) -> Tensor:
    freq = torch.exp(
        torch.arange(0, d, 2, device=index.device, dtype=torch.float32) * (-math.log(10000.0) / d)
    )
    phase = index[..., None].float() * freq
    return torch.stack([phase.sin(), phase.cos()], -1).flatten(-2)[..., :d]


def rotary(x: Tensor, start: int) -> Tensor:
    half = x.shape[-1] // 2
    freq = torch.exp(torch.arange(half, device=x.device, dtype=torch.float32) * (-math.log(10000.0) / half))
    phase = torch.arange(start, start + x.shape[-2], device=x.device, dtype=torch.float32)[:, None] * freq
    a, b = torch.split(x.to(torch.promote_types(x.dtype, torch.float32)), half, -1)
    c, s = phase.cos(), phase.sin()
    return torch.cat([a * c - b * s, b * c + a * s], -1).to(x.dtype)


def alibi_slopes(heads: int) -> Tensor:
    near = 2 ** math.floor(math.log2(heads))
    slopes = [2 ** (-8 * (i + 1) / near) for i in range(near)]
    slopes += [2 ** (-4 * (i + 1) / near) for i in range(0, 2 * near, 2)][: heads - near]
    return torch.tensor(slopes)


class SinusoidalPositions(nn.Module):
    """Waves of many lengths, added to the embeddings: no parameters, no limit.

    Args:
        d_model: width, odd ones too.

    Example:
        >>> import torch
        >>> SinusoidalPositions(4)(torch.tensor([0])).tolist()
        [[0.0, 1.0, 0.0, 1.0]]
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.d_model = d_model

    def check_end(self, end: int) -> None:
        """Every position has its waves."""

    def forward(self, index: Int[Tensor, "*b n"]) -> Float[Tensor, "*b n d"]:
        """The vectors of positions, float32."""
        return sinusoidal(index, self.d_model)


class LearnedPositions(nn.Module):
    """One learned vector for each position, added to the embeddings.

    Args:
        max_length: how many positions there are.
        d_model: width.

    Initialisation: N(0, 0.02²), as in BERT and GPT-2.

    Example:
        >>> import torch
        >>> LearnedPositions(512, 16)(torch.arange(3)).shape
        torch.Size([3, 16])
    """

    def __init__(self, max_length: int, d_model: int, **placement: Unpack[Placement]) -> None:
        super().__init__()
        if max_length < 1:
            raise InvalidArgument(f"max_length must be at least 1; got {max_length}.")
        self.max_length = max_length
        self.weight = nn.Parameter(torch.empty(max_length, d_model, **placement))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the vectors from N(0, 0.02²)."""
        nn.init.normal_(self.weight, std=0.02)

    def check_end(self, end: int) -> None:
        """Refuse a sequence that ends behind the last position."""
        if end > self.max_length:
            raise InvalidArgument(
                f"learned positions end at max_length={self.max_length}; got a sequence of {end} tokens. "
                "Shorten it, or build the model with a larger max_length."
            )

    def forward(self, index: Int[Tensor, "*b n"]) -> Float[Tensor, "*b n d"]:
        """The vectors of positions, all below max_length."""
        return F.embedding(index, self.weight)


class RotaryPositions(nn.Module):
    """Queries and keys turned by their positions, so that scores depend on distances only: no parameters.

    Args:
        d_k: channels of a query and a key, even.

    Example:
        >>> import torch
        >>> rotate, x = RotaryPositions(8), torch.randn(1, 2, 5, 8)
        >>> torch.allclose(rotate(x, start=3).norm(dim=-1), x.norm(dim=-1))
        True
    """

    def __init__(self, d_k: int) -> None:
        super().__init__()
        if d_k < 2 or d_k % 2:
            raise InvalidArgument(f"d_k must be even to be turned in pairs; got {d_k}.")
        self.d_k = d_k

    def forward(self, x: Float[Tensor, "b h n c"], start: int = 0) -> Float[Tensor, "b h n c"]:
        """Turn vectors that stand at start, start + 1, …"""
        return rotary(x, start)


class Alibi(nn.Module):
    """A penalty that grows with distance, with another slope in each head: no parameters.

    Args:
        num_heads: heads, any number.

    Example:
        >>> Alibi(2)(1, 3)[0, :, 0].tolist()
        [[-0.125, -0.0625, 0.0], [-0.0078125, -0.00390625, 0.0]]
    """

    slopes: Tensor

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.register_buffer("slopes", alibi_slopes(num_heads), persistent=False)

    def forward(self, queries: int, keys: int) -> Float[Tensor, "1 h q k"]:
        """The bias of the last `queries` positions of `keys`, float32."""
        distance = (_distance(queries, keys, self.slopes.device)).abs()
        return (-self.slopes[:, None, None] * distance)[None]


class RelativePositions(nn.Module):
    """A learned bias for each head and each range of distances, wider where farther: T5's.

    Args:
        num_heads: heads.
        causal: whether all buckets serve the past, or half of them the future.
        buckets: how many ranges; max_distance: where the last one begins.

    Initialisation: N(0, 0.02²).

    Example:
        >>> RelativePositions(4)(3, 5).shape
        torch.Size([1, 4, 3, 5])
    """

    def __init__(
        self,
        num_heads: int,
        *,
        causal: bool = False,
        buckets: int = 32,
        max_distance: int = 128,
        **placement: Unpack[Placement],
    ) -> None:
        super().__init__()
        self.causal, self.buckets, self.max_distance = causal, buckets, max_distance
        self.weight = nn.Parameter(torch.empty(buckets, num_heads, **placement))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the biases from N(0, 0.02²)."""
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, queries: int, keys: int) -> Float[Tensor, "1 h q k"]:
        """The bias of the last `queries` positions of `keys`."""
        distance = _distance(queries, keys, self.weight.device)
        bucket = relative_bucket(distance, self.causal, self.buckets, self.max_distance)
        return F.embedding(bucket, self.weight).permute(2, 0, 1)[None]


def relative_bucket(distance: Tensor, causal: bool, buckets: int, max_distance: int) -> Tensor:
    first = torch.zeros_like(distance)
    if causal:
        distance = (-distance).clamp(min=0)
    else:
        buckets //= 2
        first = (distance > 0).long() * buckets
        distance = distance.abs()
    exact = buckets // 2
    far = (
        exact
        + (
            (distance.clamp(min=1).float() / exact).log() / math.log(max_distance / exact) * (buckets - exact)
        ).long()
    )
    return first + torch.where(distance < exact, distance, far.clamp(max=buckets - 1))


def _distance(queries: int, keys: int, device: torch.device) -> Int[Tensor, "q k"]:
    """j − i for the last `queries` positions i and all `keys` positions j."""
    return torch.arange(keys, device=device) - torch.arange(keys - queries, keys, device=device)[:, None]
