"""Rotary frequencies for contexts longer than those of the training.

    Linear   θ_i / s                            every position squeezed
    NTK      base ← base · s^(d / (d − 2))      the slowest pair slower by s, the fastest as before
    YaRN     between the two, by how often a pair turns within the original length; scores sharpened by gain²

Chen et al. 2023, "Extending Context Window of Large Language Models via Positional Interpolation"; Peng et
al. 2023, "YaRN: Efficient Context Window Extension of Large Language Models", §3.
YaRN is computed as in the authors' published code, which every model trained with it follows: the ramp
between squeezed and untouched pairs is linear in the index of the pair, where the paper's equation has it in
the wavelength.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from regard.attend.phases import frequencies
from regard.errors import InvalidArgument

if TYPE_CHECKING:
    from jaxtyping import Float

Device = torch.device | str | None


class Scaling(ABC):
    """A rule that changes the frequencies; `gain` multiplies cosines and sines."""

    @property
    def gain(self) -> float:
        """Of queries and of keys, so that scores change by its square."""
        return 1.0

    @abstractmethod
    def frequencies(self, channels: int, base: float, device: Device = None) -> Float[Tensor, " half"]:
        """θ_i for every pair of channels."""


@dataclass(frozen=True)
class Linear(Scaling):
    """Positions divided by the factor."""

    factor: float

    def __post_init__(self) -> None:
        _check_factor(self.factor)

    def frequencies(self, channels: int, base: float, device: Device = None) -> Float[Tensor, " half"]:
        """θ_i / factor."""
        return frequencies(channels, base, device) / self.factor


@dataclass(frozen=True)
class NTK(Scaling):
    """A larger base: the slowest pair turns slower by the factor, the fastest stays."""

    factor: float

    def __post_init__(self) -> None:
        _check_factor(self.factor)

    def frequencies(self, channels: int, base: float, device: Device = None) -> Float[Tensor, " half"]:
        """(base · factor^(d / (d − 2)))^(−2i / d)."""
        if channels > 2:
            base = base * self.factor ** (channels / (channels - 2))
        return frequencies(channels, base, device)


@dataclass(frozen=True)
class YaRN(Scaling):
    """Pairs that turn often within the original length stay, those that turn seldom are squeezed.

    `fast` and `slow` are turns within `original_length`: more than fast and a pair stays, fewer than slow and
    it is divided by the factor, with a ramp between.
    """

    factor: float
    original_length: int
    fast: float = 32.0
    slow: float = 1.0

    def __post_init__(self) -> None:
        _check_factor(self.factor)
        if not self.original_length >= 1:
            raise InvalidArgument(
                f"original_length must be a number of positions ≥ 1; got {self.original_length}."
            )
        if not self.fast > self.slow > 0:
            raise InvalidArgument(
                f"fast must be more turns than slow, slow more than 0; got {self.fast}, {self.slow}."
            )

    @property
    def gain(self) -> float:
        """0.1 ln s + 1."""
        return 0.1 * math.log(self.factor) + 1 if self.factor > 1 else 1.0

    def frequencies(self, channels: int, base: float, device: Device = None) -> Float[Tensor, " half"]:
        """(1 − ramp) · θ_i + ramp · θ_i / factor."""
        theta = frequencies(channels, base, device)
        low = max(math.floor(self._pair(self.fast, channels, base)), 0)
        high = min(math.ceil(self._pair(self.slow, channels, base)), channels - 1)
        index = torch.arange(len(theta), dtype=theta.dtype, device=device)
        ramp = ((index - low) / max(high - low, 0.001)).clamp(0, 1)
        return theta * (1 - ramp) + theta / self.factor * ramp

    def _pair(self, turns: float, channels: int, base: float) -> float:
        """The index, not a whole number, of the pair that turns so often: θ_i · length = 2π · turns."""
        return channels * math.log(self.original_length / (2 * math.pi * turns)) / (2 * math.log(base))


def _check_factor(factor: float) -> None:
    if not 1 <= factor < math.inf:
        raise InvalidArgument(
            f"factor must be a finite number ≥ 1, new length / original length; got {factor}."
        )
