"""The two normalisations of transformers, by name.

LayerNorm(x) = γ ⊙ (x − mean x) / √(var x + ε) + β      (Ba et al. 2016)
RMSNorm(x)   = γ ⊙ x / √(mean x² + ε)                   (Zhang & Sennrich 2019)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Unpack

from torch import nn

from regard.errors import InvalidArgument

if TYPE_CHECKING:
    from regard.nn.placement import Placement

Norm = Literal["layer", "rms"]


def norm_layer(
    kind: Norm,
    width: int,
    *,
    eps: float = 1e-5,
    bias: bool = True,
    **placement: Unpack[Placement],
) -> nn.Module:
    """A normalisation over the last axis: "layer" (with β unless bias is False) or "rms". γ starts at 1, β at
    0.

    Raises:
        InvalidArgument: for another name.

    Example:
        >>> norm_layer("rms", 4)
        RMSNorm((4,), eps=1e-05, elementwise_affine=True)
    """
    if kind == "layer":
        return nn.LayerNorm(width, eps=eps, bias=bias, **placement)
    if kind == "rms":
        return nn.RMSNorm(width, eps=eps, **placement)
    raise InvalidArgument(f"norm must be 'layer' or 'rms'; got {kind!r}.")
