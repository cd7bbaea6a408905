"""Positions as modules: added to the embeddings, or acting inside attention.

    added       x_t + P[t]                           SinusoidalPositions, LearnedPositions
    turning     q_i ← R(i) q_i,  k_j ← R(j) k_j      RotaryPositions
    biasing     logits_ij + b(h, j − i)              Alibi, RelativePositions

The mathematics is in regard.attend.positions; here are the parameters, and what a module must check.
Sources: Vaswani et al. 2017, §3.5; Su et al. 2021 (rotary); Press et al. 2022 (ALiBi); Raffel et al. 2020
(relative).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attend.alibi import alibi_bias, alibi_slopes
from regard.attend.relative import bucket_of, relative_buckets
from regard.attend.rotary import Layout, rotary, rotary_table, rotate
from regard.attend.sinusoidal import sinusoidal
from regard.errors import InvalidArgument

if TYPE_CHECKING:
    from jaxtyping import Float, Int

    from regard.attend.rotary_scaling import Scaling
    from regard.nn.placement import Placement


class SinusoidalPositions(nn.Module):
    """Waves of many lengths, added to the embeddings: no parameters, no limit.

    Args:
        d_model: width, odd ones too.
        base: the longest wavelength is about 2π · base.

    Example:
        >>> import torch
        >>> SinusoidalPositions(4)(torch.tensor([0])).tolist()
        [[0.0, 1.0, 0.0, 1.0]]
    """

    def __init__(self, d_model: int, *, base: float = 10_000.0) -> None:
        super().__init__()
        self.d_model, self.base = d_model, base

    def check_end(self, end: int) -> None:
        """Every position has its waves: nothing to refuse."""

    def forward(self, index: Int[Tensor, "*b n"]) -> Float[Tensor, "*b n d"]:
        """The vectors of positions, float32."""
        return sinusoidal(index, self.d_model, base=self.base)

    def extra_repr(self) -> str:
        return f"{self.d_model}, base={self.base:g}"


class LearnedPositions(nn.Module):
    """One learned vector for each position, added to the embeddings.

    Args:
        max_length: how many positions there are.
        d_model: width.

    Initialisation: N(0, 0.02²), as in BERT and GPT-2.

    Raises:
        InvalidArgument: if max_length is below 1.

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
        """Refuse a sequence that ends behind the last position.

        Raises:
            InvalidArgument: if it does.
        """
        if end > self.max_length:
            raise InvalidArgument(
                f"learned positions end at max_length={self.max_length}; got a sequence of {end} tokens. "
                "Shorten it, or build the model with a larger max_length."
            )

    def forward(self, index: Int[Tensor, "*b n"]) -> Float[Tensor, "*b n d"]:
        """The vectors of positions, all below max_length."""
        return F.embedding(index, self.weight)

    def extra_repr(self) -> str:
        return f"max_length={self.max_length}"


class RotaryPositions(nn.Module):
    """Queries and keys turned by their positions, so that scores depend on distances only: no parameters.

    Args:
        d_k: channels of a query and a key, even.
        layout, base, scaling, channels: as in `regard.positions.rotary`.

    Raises:
        InvalidArgument: for an odd number of channels.

    Example:
        >>> import torch
        >>> turn, x = RotaryPositions(8), torch.randn(1, 2, 5, 8)
        >>> torch.allclose(turn(x, start=3).norm(dim=-1), x.norm(dim=-1))
        True
    """

    def __init__(
        self,
        d_k: int,
        *,
        layout: Layout = "half",
        base: float = 10_000.0,
        scaling: Scaling | None = None,
        channels: int | None = None,
    ) -> None:
        super().__init__()
        self.d_k, self.layout, self.base = d_k, layout, base
        self.scaling, self.channels = scaling, d_k if channels is None else channels
        self(torch.zeros(1, d_k))  # refuses what can never be turned

    def forward(self, x: Float[Tensor, "*b n c"], start: int = 0) -> Float[Tensor, "*b n c"]:
        """Turn vectors that stand at start, start + 1, …"""
        return rotary(
            x, start, layout=self.layout, base=self.base, scaling=self.scaling, channels=self.channels
        )

    def both(
        self, query: Float[Tensor, "b h n c"], key: Float[Tensor, "b g n c"], start: int = 0
    ) -> tuple[Float[Tensor, "b h n c"], Float[Tensor, "b g n c"]]:
        """Turn queries and keys that stand at the same positions, by one table of cosines and sines."""
        index = torch.arange(start, start + query.shape[-2], device=query.device)
        cos, sin = rotary_table(index, self.channels, base=self.base, scaling=self.scaling)
        return rotate(query, cos, sin, layout=self.layout), rotate(key, cos, sin, layout=self.layout)

    def extra_repr(self) -> str:
        return f"{self.d_k}, layout={self.layout!r}, base={self.base:g}, scaling={self.scaling}"


class Alibi(nn.Module):
    """A penalty that grows with distance, with another slope in each head: no parameters.

    Args:
        num_heads: heads, any number.

    Raises:
        InvalidArgument: if num_heads is below 1.

    Example:
        >>> Alibi(2)(1, 3)[0, :, 0].tolist()
        [[-0.125, -0.0625, 0.0], [-0.0078125, -0.00390625, 0.0]]
    """

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        alibi_slopes(num_heads)  # refuses what are no heads

    def forward(
        self, queries: int, keys: int, device: torch.device | None = None
    ) -> Float[Tensor, "1 h q k"]:
        """The bias of the last `queries` positions of `keys`, float32."""
        return alibi_bias(self.num_heads, queries, keys, device)[None]

    def extra_repr(self) -> str:
        return f"num_heads={self.num_heads}"


class RelativePositions(nn.Module):
    """A learned bias for each head and each range of distances, wider where farther: T5's.

    Args:
        num_heads: heads.
        causal: whether all ranges serve the past, or half of them the future.
        buckets: how many ranges; max_distance: where the last one begins.

    Initialisation: N(0, 0.02²).

    Raises:
        InvalidArgument: if there are too few buckets, or max_distance lies within the exact ones.

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
        bucket_of(torch.zeros(1), causal=causal, buckets=buckets, max_distance=max_distance)  # may refuse
        self.weight = nn.Parameter(torch.empty(buckets, num_heads, **placement))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the biases from N(0, 0.02²)."""
        nn.init.normal_(self.weight, std=0.02)

    def forward(
        self, queries: int, keys: int, device: torch.device | None = None
    ) -> Float[Tensor, "1 h q k"]:
        """The bias of the last `queries` positions of `keys`, where the parameters lie."""
        bucket = relative_buckets(
            queries,
            keys,
            causal=self.causal,
            buckets=self.buckets,
            max_distance=self.max_distance,
            device=self.weight.device,
        )
        return F.embedding(bucket, self.weight).permute(2, 0, 1)[None]

    def extra_repr(self) -> str:
        return f"causal={self.causal}, buckets={self.buckets}, max_distance={self.max_distance}"
