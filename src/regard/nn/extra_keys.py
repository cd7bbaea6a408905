"""One more key and value that every query may see: a learned one, and one of zeros.

    K ← [k_learned; 0; K],   V ← [v_learned; 0; V]

They are put *before* the sequence: then bottom-right causal alignment needs no change. They exist so that
models made with torch.nn.MultiheadAttention's `add_bias_kv` and `add_zero_attn` can be taken over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attend.mask import Mask

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

    from regard.nn.placement import Placement
    from regard.nn.projections import Projections


class ExtraKeys(nn.Module):
    """Keys besides those of the sequence. Initialisation of the learned ones: normal, Xavier's deviation."""

    def __init__(
        self,
        heads: Projections,
        *,
        learned: bool,
        zero: bool,
        **placement: Unpack[Placement],
    ) -> None:
        super().__init__()
        self.learned, self.zero, self.count = learned, zero, int(learned) + int(zero)
        groups, d_k, d_v = heads.num_kv_heads, heads.d_k, heads.d_v
        self.key = nn.Parameter(torch.empty(groups, 1, d_k, **placement)) if learned else None
        self.value = nn.Parameter(torch.empty(groups, 1, d_v, **placement)) if learned else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the learned key and value from N(0, 2 / (1 + g·d)), as for a matrix of one row."""
        for made in (self.key, self.value):
            if made is not None:
                nn.init.normal_(made, std=(2.0 / (1 + made.numel())) ** 0.5)

    def forward(
        self,
        query: Float[Tensor, "b h q c"],
        key: Float[Tensor, "b g k c"],
        value: Float[Tensor, "b g k cv"],
        mask: Mask | Bool[Tensor, "#b #h q k"] | None,
        bias: Float[Tensor, "#b #h q k"] | None,
        key_mask: Bool[Tensor, "b k"] | None,
    ) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None]:
        """Put them before the others, visible under every mask and with no bias."""
        lengths = (query.shape[2], key.shape[2])
        if isinstance(mask, Mask):
            mask = mask.full(lengths, key.device)
        if mask is not None:
            mask = F.pad(mask.expand(*mask.shape[:-1], lengths[1]), (self.count, 0), value=True)
        if bias is not None:
            bias = F.pad(bias.expand(*bias.shape[:-1], lengths[1]), (self.count, 0))
        if key_mask is not None:
            key_mask = F.pad(key_mask, (self.count, 0), value=True)
        key, value = self._before(key, self.key), self._before(value, self.value)
        return key, value, mask, bias, key_mask

    def last(self, weights: Float[Tensor, "b h q k"] | None) -> Float[Tensor, "b h q k"] | None:
        """Weights with the columns of the extra keys behind those of the sequence, where torch has them."""
        return weights.roll(-self.count, dims=-1) if self.count and weights is not None else weights

    def _before(self, x: Float[Tensor, "b g n c"], learned: Tensor | None) -> Float[Tensor, "b g m c"]:
        parts = [x]
        if self.zero:
            parts.insert(
                0, torch.zeros_like(x[:, :, :1]) if x.shape[2] else x.new_zeros(*x.shape[:2], 1, x.shape[3])
            )
        if learned is not None:
            parts.insert(0, learned.to(x.dtype).expand(x.shape[0], -1, -1, -1))
        return torch.cat(parts, dim=2)
