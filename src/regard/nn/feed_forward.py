"""The part of a block that thinks about each position alone: widen, bend, narrow.

FFN(x) = W₂ · σ(W₁ x + b₁) + b₂              σ = ReLU (Vaswani et al. 2017, §3.3) or GELU (Hendrycks & Gimpel
2016) SwiGLU(x) = W₂ · (SiLU(W₁ x) ⊙ W₃ x)         (Shazeer 2020)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Unpack, get_args

import torch.nn.functional as F
from torch import Tensor, nn

from regard.errors import InvalidArgument
from regard.nn.linear import Linear

if TYPE_CHECKING:
    from jaxtyping import Float

    from regard.nn.placement import Placement

Activation = Literal["relu", "gelu", "swiglu"]


class FeedForward(nn.Module):
    """Two linear maps with a bend between them, the same at every position.

    Args:
        d_model: width in and out.
        d_hidden: width between; default 4·d_model, and for SwiGLU 8/3·d_model rounded up to a multiple of 8,
            which has as many parameters.
        activation: "relu", "gelu" (exact, not its tanh form) or "swiglu".
        dropout: probability, on the hidden vector, in training only.
        bias: whether the maps add one.

    Initialisation: matrices Xavier-uniform, biases 0.

    Raises:
        InvalidArgument: for an unknown activation or a width below 1.

    Example:
        >>> import torch
        >>> FeedForward(12, activation="swiglu")(torch.zeros(2, 3, 12)).shape
        torch.Size([2, 3, 12])
    """

    def __init__(
        self,
        d_model: int,
        d_hidden: int | None = None,
        *,
        activation: Activation = "gelu",
        dropout: float = 0.0,
        bias: bool = True,
        **placement: Unpack[Placement],
    ) -> None:
        super().__init__()
        if activation not in get_args(Activation):
            raise InvalidArgument(f"activation must be 'relu', 'gelu' or 'swiglu'; got {activation!r}.")
        self.activation, self.gated = activation, activation == "swiglu"
        if d_hidden is None:
            d_hidden = -(-8 * d_model // 24) * 8 if self.gated else 4 * d_model
        if d_hidden < 1:
            raise InvalidArgument(f"d_hidden must be at least 1; got {d_hidden}.")
        self.dropout = dropout
        # a gated layer keeps W₁ and W₃ in one matrix: one product
        self.widen = Linear(d_model, 2 * d_hidden if self.gated else d_hidden, bias=bias, **placement)
        self.narrow = Linear(d_hidden, d_model, bias=bias, **placement)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw every matrix Xavier-uniform by its own widths; set the biases to 0."""
        for weight in (*self.widen.weight.chunk(2 if self.gated else 1), self.narrow.weight):
            nn.init.xavier_uniform_(weight)
        for bias in (self.widen.bias, self.narrow.bias):
            if bias is not None:
                nn.init.zeros_(bias)

    def forward(self, x: Float[Tensor, "*b n d"]) -> Float[Tensor, "*b n d"]:
        """Transform every position by itself."""
        hidden = self.widen(x)  # (*b, n, hidden), twice as wide when gated
        if self.gated:
            gate, up = hidden.chunk(2, dim=-1)
            hidden = F.silu(gate) * up
        else:
            hidden = F.relu(hidden) if self.activation == "relu" else F.gelu(hidden)
        narrowed: Tensor = self.narrow(F.dropout(hidden, self.dropout, self.training))
        return narrowed

    def extra_repr(self) -> str:
        return f"activation={self.activation!r}, dropout={self.dropout}"
