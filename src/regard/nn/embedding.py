"""From token ids to vectors, and from vectors back to scores for each token.

    x_t = s · E[token_t] + p_t,      logits = x Eᵀ when the output is tied

Source: Vaswani et al. 2017, §3.4 (s = √d_model) and §3.5; tying: Press & Wolf 2017.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.errors import InvalidArgument
from regard.nn.linear import linear

if TYPE_CHECKING:
    from jaxtyping import Float, Int

    from regard.nn.placement import Placement
    from regard.nn.positions import LearnedPositions, SinusoidalPositions


class TokenEmbedding(nn.Module):
    """The vector of each token, plus the vector of its position.

    Args:
        vocab_size: number of token ids.
        d_model: width of a vector.
        positions: `SinusoidalPositions`, `LearnedPositions` or None (when positions act inside attention).
        scaled: whether token vectors are multiplied by √d_model, as in Vaswani et al.
        dropout: probability on the sum, in training only.

    Initialisation: scaled, N(0, 1/d_model), so that what comes out has variance 1; else N(0, 0.02²) as in
    BERT and GPT-2.

    Raises:
        InvalidArgument: if a size is below 1.

    Example:
        >>> import torch
        >>> embed = TokenEmbedding(100, 16)
        >>> x = embed(torch.tensor([[3, 1, 3]]))
        >>> x.shape, torch.equal(x[:, 0], x[:, 2]), embed.logits(x).shape
        (torch.Size([1, 3, 16]), True, torch.Size([1, 3, 100]))
    """

    def __init__(
        self,
        vocab_size: int,
        d_model: int,
        *,
        positions: SinusoidalPositions | LearnedPositions | None = None,
        scaled: bool = False,
        dropout: float = 0.0,
        **placement: Unpack[Placement],
    ) -> None:
        super().__init__()
        if vocab_size < 1 or d_model < 1:
            raise InvalidArgument(
                f"vocab_size and d_model must be at least 1; got {vocab_size} and {d_model}."
            )
        self.vocab_size, self.d_model, self.dropout = vocab_size, d_model, dropout
        self.factor = math.sqrt(d_model) if scaled else 1.0
        self.weight = nn.Parameter(torch.empty(vocab_size, d_model, **placement))
        self.positions = positions
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the token vectors; see the class for their deviation."""
        nn.init.normal_(self.weight, std=0.02 if self.factor == 1.0 else self.d_model**-0.5)

    def forward(
        self, tokens: Int[Tensor, "b n"], *, start: int = 0, index: Int[Tensor, "b n"] | None = None
    ) -> Float[Tensor, "b n d"]:
        """Embed tokens that stand at positions start, start + 1, …, or at the positions `index` if it is
        given.

        Raises:
            InvalidArgument: if tokens are no whole numbers of shape (batch, length), or positions run out.
        """
        if tokens.dim() != 2 or tokens.is_floating_point() or tokens.dtype == torch.bool:
            raise InvalidArgument(
                "tokens must be whole numbers of shape (batch, length); "
                f"got {tokens.dtype} {tuple(tokens.shape)}."
            )
        x = F.embedding(tokens, self.weight) * self.factor  # (b, n, d)
        if self.positions is not None:
            self.positions.check_end(start + tokens.shape[1])
            if index is None:
                index = torch.arange(start, start + tokens.shape[1], device=tokens.device)
            x = x + self.positions(index).to(x.dtype)  # (n, d) or (b, n, d)
        return F.dropout(x, self.dropout, self.training)

    def logits(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n vocab"]:
        """Score every token of the vocabulary by its own vector: the tied output."""
        return linear(x, self.weight)

    def extra_repr(self) -> str:
        return f"vocab_size={self.vocab_size}, d_model={self.d_model}"
