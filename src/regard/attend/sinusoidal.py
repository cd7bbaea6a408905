"""Sinusoidal positions: every position is a vector of sines and cosines of many wavelengths.

    P[p, 2i] = sin(p / base^(2i / d)),      P[p, 2i + 1] = cos(p / base^(2i / d))

P[p + s] is a rotation of P[p] that depends on s alone. Vaswani et al. 2017, "Attention Is All You Need",
§3.5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from regard.attend.phases import frequencies, phases
from regard.errors import InvalidArgument

if TYPE_CHECKING:
    from jaxtyping import Float, Int


def sinusoidal(
    positions: Int[Tensor, "*n"],
    d_model: int,
    *,
    base: float = 10000.0,
    dtype: torch.dtype = torch.float32,
) -> Float[Tensor, "*n d_model"]:
    """The vectors of positions; an odd d_model ends with a sine that has no cosine.

    Arguments:
        positions: whole numbers, of any shape; negative ones too.
        d_model: length of a vector.
        base: the longest wavelength is about 2π · base.
        dtype: of the result; the phases are computed wider.

    >>> sinusoidal(torch.tensor([0]), 5).tolist()
    [[0.0, 1.0, 0.0, 1.0, 0.0]]
    """
    if isinstance(d_model, bool) or not isinstance(d_model, int) or d_model < 0:
        raise InvalidArgument(f"d_model must be a number of channels ≥ 0; got {d_model!r}.")
    phase = phases(positions, frequencies(d_model, base, positions.device))  # (*n, ⌈d_model / 2⌉)
    waves = torch.stack((phase.sin(), phase.cos()), dim=-1).flatten(-2)  # (*n, 2 · ⌈d_model / 2⌉)
    return waves[..., :d_model].to(dtype)
