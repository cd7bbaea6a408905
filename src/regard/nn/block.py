"""One layer of a transformer: attend, then think, each added to what came in.

    pre-norm    x ← x + f(norm(x))        (Xiong et al. 2020: trains without warm-up)
    post-norm   x ← norm(x + f(x))        (Vaswani et al. 2017, §3.1)

with f first self-attention, then (in a decoder that reads a memory) cross-attention, then the feed-forward
part.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Unpack

import torch.nn.functional as F
from torch import Tensor, nn

from regard.attend.reference import Attended
from regard.errors import InvalidArgument
from regard.nn.cache import BlockCache, KVCache
from regard.nn.feed_forward import Activation, FeedForward
from regard.nn.multi_head import MultiHeadAttention
from regard.nn.norms import Norm, norm_layer
from regard.nn.placement import Placement

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

    from regard.attend.masks import Mask
    from regard.nn.positions import Alibi, RelativePositions, RotaryPositions


class BlockShape(Placement, total=False):
    """What stacks hand on to each of their blocks; `TransformerBlock` explains it."""

    num_kv_heads: int | None
    window: tuple[int | None, int | None] | None
    qk_norm: Norm | None
    d_hidden: int | None
    activation: Activation
    norm: Norm
    norm_first: bool
    eps: float
    dropout: float
    attention_dropout: float
    bias: bool


class BlockOptions(BlockShape, total=False):
    """The same, and what acts inside self-attention."""

    positions: RotaryPositions | Alibi | RelativePositions | None


class BlockOutput(NamedTuple):
    """Output of a block, with its weights; of a stack, with a tuple of weights, one for each layer."""

    output: Tensor
    weights: Tensor | tuple[Tensor, ...]
    memory_weights: Tensor | tuple[Tensor, ...] | None


class TransformerBlock(nn.Module):
    """Self-attention, optional cross-attention and feed-forward, each with a residual and a normalisation.

    Args:
        d_model: width of the residual stream.
        num_heads, num_kv_heads, window, positions, qk_norm, bias: as in `MultiHeadAttention`.
        causal: whether self-attention is.
        cross: whether there is a cross-attention to a memory.
        d_hidden, activation: as in `FeedForward`.
        norm: "layer" or "rms"; norm_first: pre-norm or post-norm; eps: what keeps its root from zero.
        dropout: probability on the output of each part and on the hidden vector; attention_dropout: on the
            weights.

    Initialisation: as its parts state.

    Example:
        >>> import torch
        >>> block = TransformerBlock(16, 4, norm="rms", activation="swiglu", causal=True)
        >>> block(torch.randn(2, 5, 16)).shape
        torch.Size([2, 5, 16])
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        *,
        causal: bool = False,
        cross: bool = False,
        num_kv_heads: int | None = None,
        window: tuple[int | None, int | None] | None = None,
        positions: RotaryPositions | Alibi | RelativePositions | None = None,
        qk_norm: Norm | None = None,
        d_hidden: int | None = None,
        activation: Activation = "gelu",
        norm: Norm = "layer",
        norm_first: bool = True,
        eps: float = 1e-5,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        bias: bool = True,
        **placement: Unpack[Placement],
    ) -> None:
        super().__init__()
        self.norm_first, self.dropout = norm_first, dropout
        attend = partial(
            MultiHeadAttention,
            d_model,
            num_heads,
            num_kv_heads=num_kv_heads,
            qk_norm=qk_norm,
            dropout=attention_dropout,
            bias=bias,
            **placement,
        )
        normalise = partial(norm_layer, norm, d_model, eps=eps, bias=bias, **placement)
        self.attention = attend(causal=causal, window=window, positions=positions)
        self.attention_norm = normalise()
        self.cross = attend() if cross else None
        self.cross_norm = normalise() if cross else None
        self.feed_forward = FeedForward(
            d_model, d_hidden, activation=activation, dropout=dropout, bias=bias, **placement
        )
        self.feed_forward_norm = normalise()

    def forward(
        self,
        x: Float[Tensor, "b n d"],
        memory: Float[Tensor, "b m d"] | None = None,
        *,
        mask: Mask | Bool[Tensor, "#b #h n k"] | None = None,
        key_mask: Bool[Tensor, "b k"] | None = None,
        memory_mask: Mask | Bool[Tensor, "#b #h n m"] | None = None,
        memory_key_mask: Bool[Tensor, "b m"] | None = None,
        cache: BlockCache | None = None,
        return_weights: bool = False,
    ) -> Tensor | BlockOutput:
        """Transform x, reading the memory if there is cross-attention; with a cache, x holds the new tokens
        only.

        Returns:
            The output (b, n, d_model), or with return_weights `BlockOutput(output, weights, memory_weights)`.

        Raises:
            InvalidArgument: if a memory is missing or too many.
        """
        if (memory is None) != (self.cross is None):
            expected = (
                "is needed by a block with cross=True" if memory is None else "needs a block with cross=True"
            )
            raise InvalidArgument(f"memory {expected}; got {'none' if memory is None else 'one'}.")
        own, remembered = (None, None) if cache is None else cache
        attended = self.attention(
            self._before(self.attention_norm, x),
            mask=mask,
            key_mask=key_mask,
            cache=own,
            return_weights=return_weights,
        )
        change, weights = _parted(attended)
        x = self._after(self.attention_norm, x, change)
        memory_weights = None
        if self.cross is not None and self.cross_norm is not None:
            attended = self.cross(
                self._before(self.cross_norm, x),
                memory,
                mask=memory_mask,
                key_mask=memory_key_mask,
                cache=remembered,
                return_weights=return_weights,
            )
            change, memory_weights = _parted(attended)
            x = self._after(self.cross_norm, x, change)
        change = self.feed_forward(self._before(self.feed_forward_norm, x))
        x = self._after(self.feed_forward_norm, x, change)
        return x if weights is None else BlockOutput(x, weights, memory_weights)

    def new_cache(self, *, capacity: int | None = None) -> BlockCache:
        """An empty cache for this block: static with a capacity; else sliding if it has a window, else
        growing.
        """
        left = None if self.attention.window is None else self.attention.window[0]
        own = KVCache(capacity=capacity) if capacity is not None else KVCache(window=left)
        return BlockCache(own, None if self.cross is None else KVCache())

    def _before(self, norm: nn.Module, x: Tensor) -> Tensor:
        y: Tensor = norm(x) if self.norm_first else x
        return y

    def _after(self, norm: nn.Module, x: Tensor, change: Tensor) -> Tensor:
        x = x + F.dropout(change, self.dropout, self.training)
        y: Tensor = x if self.norm_first else norm(x)
        return y


def _parted(attended: Tensor | Attended) -> tuple[Tensor, Tensor | None]:
    """Output and weights, whichever way attention answered."""
    return (attended, None) if isinstance(attended, Tensor) else (attended.output, attended.weights)
