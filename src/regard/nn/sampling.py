"""How the next token is chosen from its scores.

    p = softmax(logits / T) over the tokens that top-k and top-p leave

T → 0 takes the best one (greedy), T → ∞ any of them. Top-k keeps the k best (Fan et al. 2018); top-p the
fewest whose probabilities sum to at least p (Holtzman et al. 2020, "nucleus").
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from regard.errors import InvalidArgument

if TYPE_CHECKING:
    from jaxtyping import Float, Int


def choose(
    logits: Float[Tensor, "b vocab"],
    *,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    generator: torch.Generator | None = None,
) -> Int[Tensor, " b"]:
    """One token for each row of scores.

    Args:
        logits: scores of every token.
        temperature: 0 takes the best, 1 draws from the model's own distribution, more is bolder.
        top_k: draw from the k best only.
        top_p: draw from the fewest best whose probabilities sum to top_p.
        generator: where chance comes from.

    Raises:
        InvalidArgument: for a negative or not-a-number temperature, top_k below 1, top_p outside (0, 1].

    Example:
        >>> import torch
        >>> choose(torch.tensor([[0.0, 3.0, 1.0]])).tolist()
        [1]
    """
    if not temperature >= 0:
        raise InvalidArgument(f"temperature must be 0 or more; got {temperature}. 0 takes the best token.")
    if top_k is not None and top_k < 1:
        raise InvalidArgument(f"top_k must be at least 1; got {top_k}. Leave it out to draw from all tokens.")
    if top_p is not None and not 0 < top_p <= 1:
        raise InvalidArgument(f"top_p must lie in (0, 1]; got {top_p}. Leave it out to draw from all tokens.")
    if temperature == 0:
        return logits.argmax(dim=-1)
    return torch.multinomial(probabilities(logits, temperature, top_k, top_p), 1, generator=generator)[:, 0]


def probabilities(
    logits: Float[Tensor, "b vocab"], temperature: float, top_k: int | None, top_p: float | None
) -> Float[Tensor, "b vocab"]:
    """What `choose` draws from, for a temperature above 0: rows sum to 1, tokens left out have 0.

    Example:
        >>> import torch
        >>> probabilities(torch.tensor([[0.0, 0.0, -9.0]]), 1.0, 2, None).tolist()
        [[0.5, 0.5, 0.0]]
    """
    logits = logits.float()
    best = logits.amax(dim=-1, keepdim=True)
    cold = (logits - best) / temperature  # the best is 0: no overflow for a temperature near 0
    cold = torch.where(logits == -torch.inf, logits, cold)  # −inf stays, also divided by ∞
    ranked, order = cold.sort(dim=-1, descending=True, stable=True)
    if top_k is not None:
        ranked[:, top_k:] = -torch.inf
    if top_p is not None:
        p = ranked.softmax(dim=-1)
        before = p.cumsum(dim=-1) - p  # what better tokens sum to
        ranked = ranked.masked_fill(before >= top_p, -torch.inf)
    return torch.zeros_like(cold).scatter(-1, order, ranked.softmax(dim=-1))
