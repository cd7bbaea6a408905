"""The whole model: token ids in, scores of every next token out.

    logits = Decoder(E[tokens] + P, memory) W_out,    memory = Encoder(E[source] + P)
    p(next) = softmax(logits)

Source: Vaswani et al. 2017 (with an encoder); Radford et al. 2018 (decoder only).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Unpack, get_args

from torch import Tensor, nn

from regard.errors import InvalidArgument
from regard.nn.decoder import Decoder
from regard.nn.embedding import TokenEmbedding
from regard.nn.encoder import Encoder, placement
from regard.nn.generation import generate
from regard.nn.linear import Linear
from regard.nn.positions import (
    Alibi,
    LearnedPositions,
    RelativePositions,
    RotaryPositions,
    SinusoidalPositions,
)

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

    from regard.nn.block import BlockOptions, BlockShape
    from regard.nn.cache import BlockCache

PositionKind = Literal["sinusoidal", "learned", "rotary", "alibi", "relative", "none"]


class Transformer(nn.Module):
    """An encoder–decoder, or with `num_encoder_layers=0` a decoder-only language model.

    Args:
        vocab_size: number of token ids; source_vocab_size: the same for the source, default one shared
            embedding.
        d_model, num_heads: as in `TransformerBlock`.
        num_layers: blocks of the decoder; num_encoder_layers: of the encoder.
        positions: "sinusoidal" or "learned" (added to the embeddings), "rotary", "alibi" or "relative"
            (inside self-attention), or "none".
        max_length: what learned positions need: how many there are.
        tied: whether the output uses the embedding's matrix; else a linear map of its own, N(0, 0.02²).
        scaled: whether embeddings are multiplied by √d_model; default when positions are sinusoidal, as in
            the paper.
        options: everything else that `TransformerBlock` takes.

    Where a `key_mask` marks padding, on the left or on the right, positions count the real tokens only.

    Raises:
        InvalidArgument: for an unknown kind of positions, or learned ones without max_length.

    Example:
        >>> import torch
        >>> model = Transformer(50, 16, 4, 2, positions="rotary", norm="rms", activation="swiglu")
        >>> model(torch.tensor([[1, 2, 3]])).shape
        torch.Size([1, 3, 50])
        >>> model.generate(torch.tensor([[1, 2, 3]]), 5).shape
        torch.Size([1, 8])
    """

    generate = generate

    def __init__(
        self,
        vocab_size: int,
        d_model: int,
        num_heads: int,
        num_layers: int,
        *,
        num_encoder_layers: int = 0,
        source_vocab_size: int | None = None,
        positions: PositionKind = "sinusoidal",
        max_length: int | None = None,
        tied: bool = True,
        scaled: bool | None = None,
        **options: Unpack[BlockShape],
    ) -> None:
        super().__init__()
        if positions not in get_args(PositionKind):
            kinds = ", ".join(map(repr, get_args(PositionKind)))
            raise InvalidArgument(f"positions must be one of {kinds}; got {positions!r}.")
        if positions == "learned" and max_length is None:
            raise InvalidArgument("max_length must say how many learned positions there are; got None.")
        made = placement(options)
        dropout = options.get("dropout", 0.0)
        scaled = positions == "sinusoidal" if scaled is None else scaled

        def embedding(size: int) -> TokenEmbedding:
            added: SinusoidalPositions | LearnedPositions | None = None
            if positions == "sinusoidal":
                added = SinusoidalPositions(d_model)
            elif positions == "learned" and max_length is not None:
                added = LearnedPositions(max_length, d_model, **made)
            return TokenEmbedding(size, d_model, positions=added, scaled=scaled, dropout=dropout, **made)

        def inside(causal: bool) -> BlockOptions:
            if positions == "rotary":
                return {**options, "positions": RotaryPositions(d_model // num_heads)}
            if positions == "alibi":
                return {**options, "positions": Alibi(num_heads)}
            if positions == "relative":
                return {**options, "positions": RelativePositions(num_heads, causal=causal, **made)}
            return {**options, "positions": None}

        self.embedding = embedding(vocab_size)
        has_encoder = num_encoder_layers > 0
        self.source_embedding = embedding(source_vocab_size) if has_encoder and source_vocab_size else None
        self.encoder = (
            Encoder(d_model, num_heads, num_encoder_layers, **inside(False)) if has_encoder else None
        )
        self.decoder = Decoder(d_model, num_heads, num_layers, cross=has_encoder, **inside(True))
        self.output = None if tied else Linear(d_model, vocab_size, bias=False, **made)
        if self.output is not None:
            nn.init.normal_(self.output.weight, std=0.02)

    def forward(
        self,
        tokens: Int[Tensor, "b n"],
        source: Int[Tensor, "b m"] | None = None,
        *,
        key_mask: Bool[Tensor, "b k"] | None = None,
        source_key_mask: Bool[Tensor, "b m"] | None = None,
    ) -> Float[Tensor, "b n vocab"]:
        """The scores of each next token, in one parallel pass: what training needs.

        Raises:
            InvalidArgument: if a source is missing or too many.
        """
        memory = self.encode(source, key_mask=source_key_mask)
        return self.decode(tokens, memory, key_mask=key_mask, memory_key_mask=source_key_mask)

    def encode(
        self, source: Int[Tensor, "b m"] | None, *, key_mask: Bool[Tensor, "b m"] | None = None
    ) -> Float[Tensor, "b m d"] | None:
        """What the decoder reads of a source; None for a decoder-only model.

        Raises:
            InvalidArgument: if a source is missing or too many.
        """
        if (source is None) != (self.encoder is None):
            expected = "is needed by an encoder–decoder" if source is None else "needs num_encoder_layers > 0"
            raise InvalidArgument(f"source {expected}; got {'none' if source is None else 'one'}.")
        if source is None or self.encoder is None:
            return None
        embedding = self.embedding if self.source_embedding is None else self.source_embedding
        memory: Tensor = self.encoder(
            embedding(source, index=counted(key_mask, source.shape[1])), key_mask=key_mask
        )
        return memory

    def decode(
        self,
        tokens: Int[Tensor, "b n"],
        memory: Float[Tensor, "b m d"] | None = None,
        *,
        key_mask: Bool[Tensor, "b k"] | None = None,
        memory_key_mask: Bool[Tensor, "b m"] | None = None,
        cache: list[BlockCache] | None = None,
    ) -> Float[Tensor, "b n vocab"]:
        """Scores of each next token; with a cache, `tokens` are the new ones and key_mask covers all so
        far.
        """
        start = len(cache[0].own) if cache else 0
        x = self.embedding(tokens, start=start, index=counted(key_mask, tokens.shape[1]))
        x = self.decoder(x, memory, key_mask=key_mask, memory_key_mask=memory_key_mask, cache=cache)
        scores: Tensor = self.embedding.logits(x) if self.output is None else self.output(x)
        return scores

    def next_token(
        self, tokens: Int[Tensor, "b n"], source: Int[Tensor, "b m"] | None = None
    ) -> Float[Tensor, "b vocab"]:
        """The probability of every token to come next: the softmax of the last position's scores."""
        logits: Tensor = self(tokens, source)
        return logits[:, -1].float().softmax(dim=-1)

    def new_cache(self, *, capacity: int | None = None) -> list[BlockCache]:
        """An empty cache for decoding, one entry for each block."""
        return self.decoder.new_cache(capacity=capacity)


def counted(key_mask: Bool[Tensor, "b k"] | None, new: int) -> Int[Tensor, "b n"] | None:
    """The positions of the last `new` tokens when padding is not counted; None without padding.

    Example:
        >>> import torch
        >>> counted(torch.tensor([[False, False, True, True]]), 4).tolist()
        [[0, 0, 0, 1]]
    """
    return None if key_mask is None else (key_mask.cumsum(dim=-1) - 1).clamp(min=0)[:, -new:]
