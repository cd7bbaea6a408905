"""A stack of blocks in which every position sees every other.

    x ← block_N(… block_1(x)),  and a last normalisation when the blocks are pre-norm

Source: Vaswani et al. 2017, §3.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from torch import Tensor, nn

from regard.errors import InvalidArgument
from regard.nn.block import BlockOptions, BlockOutput, BlockShape, TransformerBlock
from regard.nn.norms import norm_layer
from regard.nn.placement import Placement

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

    from regard.attend.masks import Mask


class Encoder(nn.Module):
    """Blocks of self-attention over a whole sequence.

    Args:
        d_model, num_heads: as in `TransformerBlock`.
        num_layers: how many blocks.
        options: everything else that `TransformerBlock` takes.

    Initialisation: as the parts state; with pre-norm, what each block adds to the stream is scaled by
    1/√(number of additions), as in GPT-2 (Radford et al. 2019, §2.3), so that its variance does not grow with
    depth.

    Example:
        >>> import torch
        >>> Encoder(16, 4, 2, norm_first=False, activation="relu")(torch.randn(2, 5, 16)).shape
        torch.Size([2, 5, 16])
    """

    def __init__(
        self, d_model: int, num_heads: int, num_layers: int, **options: Unpack[BlockOptions]
    ) -> None:
        super().__init__()
        self.blocks = blocks(d_model, num_heads, num_layers, causal=False, cross=False, options=options)
        self.norm = last_norm(d_model, options)

    def forward(
        self,
        x: Float[Tensor, "b n d"],
        *,
        mask: Mask | Bool[Tensor, "#b #h n n"] | None = None,
        key_mask: Bool[Tensor, "b n"] | None = None,
        return_weights: bool = False,
    ) -> Tensor | BlockOutput:
        """Encode; `key_mask` is False at padding. With return_weights also the weights of each layer."""
        weights = []
        for block in self.blocks:
            out = block(x, mask=mask, key_mask=key_mask, return_weights=return_weights)
            if return_weights:
                weights.append(out.weights)
                out = out.output
            x = out
        x = self.norm(x)
        return BlockOutput(x, tuple(weights), None) if return_weights else x


def blocks(
    d_model: int, num_heads: int, num_layers: int, *, causal: bool, cross: bool, options: BlockOptions
) -> nn.ModuleList:
    """The blocks of a stack, their additions scaled when they are pre-norm.

    Raises:
        InvalidArgument: if num_layers is below 1.
    """
    if num_layers < 1:
        raise InvalidArgument(f"num_layers must be at least 1; got {num_layers}.")
    made = [
        TransformerBlock(d_model, num_heads, causal=causal, cross=cross, **options) for _ in range(num_layers)
    ]
    if options.get("norm_first", True):
        additions = num_layers * (3 if cross else 2)
        for block in made:
            adding = [block.attention.output, block.feed_forward.narrow]
            adding += [] if block.cross is None else [block.cross.output]
            for linear in adding:
                linear.weight.data.mul_(additions**-0.5)
    return nn.ModuleList(made)


def last_norm(d_model: int, options: BlockOptions) -> nn.Module:
    """The normalisation after the last block: pre-norm needs one, post-norm has had it."""
    if not options.get("norm_first", True):
        return nn.Identity()
    return norm_layer(
        options.get("norm", "layer"),
        d_model,
        eps=options.get("eps", 1e-5),
        bias=options.get("bias", True),
        **placement(options),
    )


def placement(options: BlockShape) -> Placement:
    """The part of the options that says where parameters are made."""
    return {"device": options.get("device"), "dtype": options.get("dtype")}
