"""Modules built on attend/: attention with its projections, blocks, stacks, and what decoding needs.

    TokenEmbedding ─▶ Encoder ─▶ memory ─▶ Decoder ─▶ scores        (Transformer puts them together)
                      └ TransformerBlock = MultiHeadAttention + FeedForward
                                           └ Projections, positions, KVCache

Every name is imported when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

# public name -> module that holds it
_NAMES = {
    "Alibi": "positions",
    "BlockCache": "cache",
    "BlockOptions": "block",
    "BlockOutput": "block",
    "BytePair": "bytepair",
    "Decoder": "decoder",
    "Encoder": "encoder",
    "FeedForward": "feed_forward",
    "KVCache": "cache",
    "LearnedPositions": "positions",
    "MultiHeadAttention": "multi_head",
    "Projections": "projections",
    "RelativePositions": "positions",
    "RotaryPositions": "positions",
    "SinusoidalPositions": "positions",
    "TokenEmbedding": "embedding",
    "Transformer": "transformer",
    "TransformerBlock": "block",
    "choose": "sampling",
}

__all__ = list(_NAMES)


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module 'regard.nn' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"regard.nn.{_NAMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


if TYPE_CHECKING:  # the same names, for editors and type checkers
    from regard.nn.block import BlockOptions as BlockOptions
    from regard.nn.block import BlockOutput as BlockOutput
    from regard.nn.block import TransformerBlock as TransformerBlock
    from regard.nn.bytepair import BytePair as BytePair
    from regard.nn.cache import BlockCache as BlockCache
    from regard.nn.cache import KVCache as KVCache
    from regard.nn.decoder import Decoder as Decoder
    from regard.nn.embedding import TokenEmbedding as TokenEmbedding
    from regard.nn.encoder import Encoder as Encoder
    from regard.nn.feed_forward import FeedForward as FeedForward
    from regard.nn.multi_head import MultiHeadAttention as MultiHeadAttention
    from regard.nn.positions import Alibi as Alibi
    from regard.nn.positions import LearnedPositions as LearnedPositions
    from regard.nn.positions import RelativePositions as RelativePositions
    from regard.nn.positions import RotaryPositions as RotaryPositions
    from regard.nn.positions import SinusoidalPositions as SinusoidalPositions
    from regard.nn.projections import Projections as Projections
    from regard.nn.sampling import choose as choose
    from regard.nn.transformer import Transformer as Transformer
