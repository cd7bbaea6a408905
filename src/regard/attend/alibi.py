"""ALiBi: a penalty that grows linearly with distance, another slope in each head, nothing to learn.

    logits_pj = scale · q_p·k_j − m_h · |p − j|,      m_h = 2^(−8h / heads),   h = 1 … heads

For a number of heads that is no power of two the paper's code takes the slopes of the next smaller power,
then every other one of the next larger. Press et al. 2022, "Train Short, Test Long", §3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from regard.errors import InvalidArgument

if TYPE_CHECKING:
    from jaxtyping import Float


def alibi_slopes(heads: int, device: torch.device | str | None = None) -> Float[Tensor, " h"]:
    """m_h, positive, of every head.

    >>> alibi_slopes(4).tolist()
    [0.25, 0.0625, 0.015625, 0.00390625]
    """
    if isinstance(heads, bool) or not isinstance(heads, int) or heads < 1:
        raise InvalidArgument(f"heads must be a number ≥ 1; got {heads!r}.")
    power = 1 << (heads.bit_length() - 1)  # the largest power of two that is no larger
    exponents = [8 * h / power for h in range(1, power + 1)]
    exponents += [8 * h / (2 * power) for h in range(1, 2 * power, 2)][: heads - power]
    return torch.tensor([2.0**-exponent for exponent in exponents], device=device)


def alibi_bias(
    heads: int, queries: int, keys: int, device: torch.device | str | None = None
) -> Float[Tensor, "h q k"]:
    """−m_h · |p − j|, where the last query lies on the last key.

    >>> alibi_bias(1, 1, 3).tolist()
    [[[-0.0078125, -0.00390625, 0.0]]]
    """
    position = torch.arange(keys - queries, keys, device=device)[:, None]
    distance = (position - torch.arange(keys, device=device)).abs()  # (q, k)
    return alibi_slopes(heads, device)[:, None, None] * -distance
