"""A stack of causal blocks: every position sees itself and its past, and perhaps a memory.

    x ← block_N(… block_1(x, memory), memory)

Source: Vaswani et al. 2017, §3.1; without a memory, Radford et al. 2018.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from torch import Tensor, nn

from regard.errors import InvalidArgument
from regard.nn.block import BlockOptions, BlockOutput, TransformerBlock
from regard.nn.encoder import blocks, last_norm

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

    from regard.attend.masks import Mask
    from regard.nn.cache import BlockCache


class Decoder(nn.Module):
    """Blocks of causal self-attention, with cross-attention to a memory if `cross`.

    Args:
        d_model, num_heads: as in `TransformerBlock`.
        num_layers: how many blocks.
        cross: whether each block reads the memory of an encoder.
        options: everything else that `TransformerBlock` takes.

    Initialisation: as in `Encoder`.

    Example:
        >>> import torch
        >>> decoder, x = Decoder(16, 4, 2).eval(), torch.randn(1, 5, 16)
        >>> with torch.no_grad():
        ...     whole, cache = decoder(x), decoder.new_cache()
        ...     steps = torch.cat([decoder(x[:, i : i + 1], cache=cache) for i in range(5)], dim=1)
        >>> torch.allclose(whole, steps, atol=1e-5)
        True
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        num_layers: int,
        *,
        cross: bool = False,
        **options: Unpack[BlockOptions],
    ) -> None:
        super().__init__()
        self.blocks = blocks(d_model, num_heads, num_layers, causal=True, cross=cross, options=options)
        self.norm = last_norm(d_model, options)

    def new_cache(self, *, capacity: int | None = None) -> list[BlockCache]:
        """An empty cache for each block: static with a capacity, else sliding with a window, else growing."""
        made = (block for block in self.blocks if isinstance(block, TransformerBlock))
        return [block.new_cache(capacity=capacity) for block in made]

    def forward(
        self,
        x: Float[Tensor, "b n d"],
        memory: Float[Tensor, "b m d"] | None = None,
        *,
        mask: Mask | Bool[Tensor, "#b #h n k"] | None = None,
        key_mask: Bool[Tensor, "b k"] | None = None,
        memory_mask: Mask | Bool[Tensor, "#b #h n m"] | None = None,
        memory_key_mask: Bool[Tensor, "b m"] | None = None,
        cache: list[BlockCache] | None = None,
        return_weights: bool = False,
    ) -> Tensor | BlockOutput:
        """Decode; with a cache, x holds the new tokens only, and mask and key_mask cover all tokens so far.

        Raises:
            InvalidArgument: if the cache is not of this stack's depth.
        """
        if cache is not None and len(cache) != len(self.blocks):
            raise InvalidArgument(
                f"cache must hold one entry for each of the {len(self.blocks)} blocks; got {len(cache)}. "
                "Make it with new_cache()."
            )
        weights, memory_weights = [], []
        for i, block in enumerate(self.blocks):
            out = block(
                x,
                memory,
                mask=mask,
                key_mask=key_mask,
                memory_mask=memory_mask,
                memory_key_mask=memory_key_mask,
                cache=None if cache is None else cache[i],
                return_weights=return_weights,
            )
            if return_weights:
                weights.append(out.weights)
                memory_weights.append(out.memory_weights)
                out = out.output
            x = out
        x = self.norm(x)
        if not return_weights:
            return x
        return BlockOutput(x, tuple(weights), None if memory is None else tuple(memory_weights))
