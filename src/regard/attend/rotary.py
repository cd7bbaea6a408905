"""Rotary positions: turn pairs of channels of queries and keys by angles that grow with the position.

    (a, b) ← (a cos φ − b sin φ, b cos φ + a sin φ),      φ = p · θ_i

The product of a query at p and a key at j then depends on p − j alone. Su et al. 2021, "RoFormer: Enhanced
Transformer with Rotary Position Embedding", §3.4.

Two layouts of the pairs are in use: "interleaved" turns channels (0, 1), (2, 3), … (the paper, GPT-J, Llama's
own code), "half" turns channels (0, d/2), (1, d/2 + 1), … (GPT-NeoX, all Llama-like models in transformers).
They are the same up to an order of the channels, which `interleaved_to_half` and `half_to_interleaved`
change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from regard.attend.phases import frequencies, phases
from regard.attend.rotary_scaling import Scaling
from regard.errors import InvalidArgument

if TYPE_CHECKING:
    from jaxtyping import Float, Int

Layout = Literal["half", "interleaved"]


def rotary(
    x: Float[Tensor, "*b n d"],
    positions: int | Int[Tensor, "*b n"] = 0,
    *,
    layout: Layout = "half",
    base: float = 10000.0,
    scaling: Scaling | None = None,
    channels: int | None = None,
) -> Float[Tensor, "*b n d"]:
    """Queries or keys, turned by their positions.

    Arguments:
        x: (…, n, d), d even.
        positions: that of the first vector, the others following it; or one for each, broadcasting to (…, n).
        layout: which channels make a pair, "half" or "interleaved".
        base: θ_i = base^(−2i / channels).
        scaling: a rule for contexts longer than a model was trained on: `Linear`, `NTK` or `YaRN`.
        channels: turn only so many of the first channels (GPT-NeoX and Phi turn a part); all, if not given.

    Phases in float64 where the device has it, the turn in float32 or wider, the result in the dtype of x.

    >>> x = torch.randn(2, 8)
    >>> apart = rotary(x, 0)[1] @ rotary(x, 0)[0], rotary(x, 1000)[1] @ rotary(x, 1000)[0]
    >>> torch.allclose(*apart, atol=1e-5)
    True
    """
    turned = x.shape[-1] if channels is None else channels
    cos, sin = rotary_table(_positions(x, positions), turned, base=base, scaling=scaling)
    return rotate(x, cos, sin, layout=layout)


def rotary_table(
    positions: Int[Tensor, "*n"],
    channels: int,
    *,
    base: float = 10000.0,
    scaling: Scaling | None = None,
) -> tuple[Float[Tensor, "*n half"], Float[Tensor, "*n half"]]:
    """Cosines and sines for `rotate`: compute them once, use them in every layer."""
    if isinstance(channels, bool) or not isinstance(channels, int) or channels < 0 or channels % 2:
        raise InvalidArgument(f"channels must be an even number, turned in pairs; got {channels!r}.")
    if scaling is None:
        phase, gain = phases(positions, frequencies(channels, base, positions.device)), 1.0
    else:
        phase, gain = phases(positions, scaling.frequencies(channels, base, positions.device)), scaling.gain
    return phase.cos() * gain, phase.sin() * gain


def rotate(
    x: Float[Tensor, "*b n d"],
    cos: Float[Tensor, "*b n half"],
    sin: Float[Tensor, "*b n half"],
    *,
    layout: Layout = "half",
) -> Float[Tensor, "*b n d"]:
    """Turn the pairs of the first 2 · half channels of x; the others stay."""
    if layout not in ("half", "interleaved"):
        raise InvalidArgument(f"layout must be 'half' or 'interleaved'; got {layout!r}.")
    half = cos.shape[-1]
    if 2 * half > x.shape[-1]:
        raise InvalidArgument(f"at most the {x.shape[-1]} channels of x can be turned; got {2 * half}.")
    wide = torch.promote_types(x.dtype, torch.float32)
    cos, sin = cos.to(wide), sin.to(wide)
    turned, rest = x[..., : 2 * half].to(wide), x[..., 2 * half :]
    if layout == "half":
        a, b = turned[..., :half], turned[..., half:]
        turned = torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)
    else:
        a, b = turned[..., ::2], turned[..., 1::2]
        turned = torch.stack((a * cos - b * sin, b * cos + a * sin), dim=-1).flatten(-2)
    turned = turned.to(x.dtype)
    return torch.cat((turned, rest), dim=-1) if rest.shape[-1] else turned


def interleaved_to_half(x: Float[Tensor, "*b d"], dim: int = -1) -> Float[Tensor, "*b d"]:
    """Channels 0 1 2 3 4 5 in the order 0 2 4 1 3 5, of activations or of a projection's rows (per head)."""
    return _swap(x, dim, (_pairs(x, dim), 2))


def half_to_interleaved(x: Float[Tensor, "*b d"], dim: int = -1) -> Float[Tensor, "*b d"]:
    """Channels 0 1 2 3 4 5 in the order 0 3 1 4 2 5: the inverse of `interleaved_to_half`."""
    return _swap(x, dim, (2, _pairs(x, dim)))


def _positions(x: Tensor, positions: int | Tensor) -> Int[Tensor, "*b n"]:
    if isinstance(positions, int):
        return torch.arange(positions, positions + x.shape[-2], device=x.device)
    if positions.is_floating_point() or positions.dtype == torch.bool:
        raise InvalidArgument(
            f"positions must be whole numbers; got {positions.dtype}. "
            "Half precision cannot tell 256 from 257: make them with torch.arange."
        )
    if positions.ndim == 0 or positions.shape[-1] not in (1, x.shape[-2]):
        raise InvalidArgument(
            f"positions must have one number for each of the {x.shape[-2]} vectors; "
            f"got the shape {tuple(positions.shape)}."
        )
    return positions.to(x.device)


def _pairs(x: Tensor, dim: int) -> int:
    if x.shape[dim] % 2:
        raise InvalidArgument(f"channels must be an even number, turned in pairs; got {x.shape[dim]}.")
    return x.shape[dim] // 2


def _swap(x: Tensor, dim: int, sizes: tuple[int, int]) -> Tensor:
    """Cut one axis in two, swap them, and join them again."""
    shape = x.shape
    dim = dim % x.ndim
    return x.reshape(*shape[:dim], *sizes, *shape[dim + 1 :]).transpose(dim, dim + 1).reshape(shape)
