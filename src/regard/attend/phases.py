"""Where a position stands on its circles: the angles that sinusoidal and rotary positions share.

    phase[p, i] = p · θ_i,      θ_i = base^(−2i / channels),   i = 0 … ⌈channels / 2⌉ − 1

In low precision neighbouring positions fall together (256 and 257 are one number in bfloat16), and in float32
the phase of position 100,000 is off by 0.004 rad. So the product is taken in float64 wherever the device has
it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from regard.errors import InvalidArgument

if TYPE_CHECKING:
    from jaxtyping import Float, Int


def frequencies(
    channels: int, base: float = 10000.0, device: torch.device | str | None = None
) -> Float[Tensor, " half"]:
    """θ_i for every pair of channels, in float64 where the device has it."""
    if not base > 1:
        raise InvalidArgument(f"base must be greater than 1; got {base}. 10000 is the papers'.")
    half = torch.arange(0, channels, 2, device=device).to(widest(device))
    return base ** (-half / max(channels, 1))


def phases(positions: Int[Tensor, "*n"], theta: Float[Tensor, " half"]) -> Float[Tensor, "*n half"]:
    """p · θ_i."""
    return positions.to(theta.dtype)[..., None] * theta.to(positions.device)


def widest(device: torch.device | str | None) -> torch.dtype:
    """float64, or float32 on a device without it."""
    return torch.float32 if device is not None and torch.device(device).type == "mps" else torch.float64
