"""Writing on: choose a token, append it, ask again.

    t_{n+1} ~ softmax(logits(t_1 … t_n) / T)

With a cache each step computes one row of attention, O(n·d); without one the whole square again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from regard.errors import InvalidArgument
from regard.nn.sampling import choose

if TYPE_CHECKING:
    from jaxtyping import Bool, Int

    from regard.nn.transformer import Transformer


@torch.no_grad()
def generate(
    self: Transformer,
    tokens: Int[Tensor, "b n"],
    max_new_tokens: int,
    *,
    source: Int[Tensor, "b m"] | None = None,
    key_mask: Bool[Tensor, "b n"] | None = None,
    source_key_mask: Bool[Tensor, "b m"] | None = None,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    eos: int | None = None,
    use_cache: bool = True,
    generator: torch.Generator | None = None,
) -> Int[Tensor, "b n+new"]:
    """The tokens, followed by up to max_new_tokens new ones.

    Args:
        tokens: how each item begins, at least one token. Shorter items are padded on the *left*, with
            key_mask False there.
        max_new_tokens: at most so many.
        source, source_key_mask: what an encoder–decoder reads; its padding may be on either side.
        temperature, top_k, top_p, generator: as in `regard.nn.choose`; the default takes the best token.
        eos: the token that ends an item. An item that has ended is filled with it; all ended, generation
            stops.
        use_cache: whether keys and values are remembered. The result is the same, the time is not.

    The model is in evaluation mode meanwhile, and gets its own mode back.

    Raises:
        InvalidArgument: if there is no token to begin with, the padding is not on the left, or a number is
            out of range.
    """
    if tokens.dim() != 2 or tokens.shape[1] == 0:
        raise InvalidArgument(
            "tokens must be (batch, length) with at least one token to begin with; "
            f"got {tuple(tokens.shape)}."
        )
    if max_new_tokens < 0:
        raise InvalidArgument(f"max_new_tokens must be 0 or more; got {max_new_tokens}.")
    if key_mask is not None and not bool(key_mask[:, -1].all()):
        raise InvalidArgument("key_mask must end with True in every row; pad on the left to generate.")
    was_training = self.training
    self.eval()
    try:
        memory = self.encode(source, key_mask=source_key_mask)
        cache = self.new_cache() if use_cache else None
        new = tokens
        ended = torch.zeros(tokens.shape[0], dtype=torch.bool, device=tokens.device)
        for _ in range(max_new_tokens):
            logits = self.decode(
                new if use_cache else tokens,
                memory,
                key_mask=key_mask,
                memory_key_mask=source_key_mask,
                cache=cache,
            )
            chosen = choose(
                logits[:, -1], temperature=temperature, top_k=top_k, top_p=top_p, generator=generator
            )
            if eos is not None:
                chosen = torch.where(ended, eos, chosen)
                ended = ended | (chosen == eos)
            new = chosen[:, None]  # (b, 1)
            tokens = torch.cat([tokens, new], dim=1)
            if key_mask is not None:
                key_mask = torch.cat([key_mask, torch.ones_like(key_mask[:, :1])], dim=1)
            if eos is not None and bool(ended.all()):
                break
        return tokens
    finally:
        self.train(was_training)
