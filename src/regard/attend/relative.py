"""T5's relative positions: distances in buckets, each exact when near and wider when farther.

    bucket(n) = n                                                                       n < exact
    bucket(n) = exact + ⌊log(n / exact) / log(max_distance / exact) · (buckets − exact)⌋    beyond

at most buckets − 1, with exact = buckets // 2. Causal: n = p − j, the future in bucket 0. Bidirectional: half
of the buckets for keys up to the own position, half for those behind it. Each head learns one bias per
bucket. Raffel et al. 2020, "Exploring the Limits of Transfer Learning with a Unified Text-to-Text
Transformer", §2.1.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from regard.errors import InvalidArgument

if TYPE_CHECKING:
    from jaxtyping import Int


def relative_buckets(
    queries: int,
    keys: int,
    *,
    causal: bool = False,
    buckets: int = 32,
    max_distance: int = 128,
    device: torch.device | str | None = None,
) -> Int[Tensor, "q k"]:
    """The bucket of every pair, where the last query lies on the last key.

    >>> relative_buckets(1, 4, causal=True).tolist()
    [[3, 2, 1, 0]]
    """
    position = torch.arange(keys - queries, keys, device=device)[:, None]
    ahead = torch.arange(keys, device=device) - position
    return bucket_of(ahead, causal=causal, buckets=buckets, max_distance=max_distance)


def bucket_of(
    ahead: Int[Tensor, "*n"], *, causal: bool = False, buckets: int = 32, max_distance: int = 128
) -> Int[Tensor, "*n"]:
    """The bucket of distances j − p."""
    half = buckets if causal else buckets // 2
    exact = half // 2
    if exact < 1 or (not causal and buckets % 2):
        least = "≥ 2" if causal else "even and ≥ 4"
        raise InvalidArgument(f"buckets must be {least}; got {buckets}.")
    if max_distance <= exact:
        raise InvalidArgument(
            f"max_distance must be greater than the {exact} distances with a bucket of their own; "
            f"got {max_distance}."
        )
    distance = (-ahead).clamp(min=0) if causal else ahead.abs()
    ratio = torch.log(distance.clamp(min=1).float() / exact) / math.log(max_distance / exact)
    far = (exact + (ratio * (half - exact)).long()).clamp(max=half - 1)
    bucket = torch.where(distance < exact, distance, far)
    return bucket if causal else bucket + half * (ahead > 0)
