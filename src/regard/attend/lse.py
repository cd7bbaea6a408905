"""Softmax and log-sum-exp of rows, with the limits of the temperature and with rows that have nothing to
attend to.

    weights = exp(logits / T − lse),   lse = log Σ exp(logits / T)

The largest logit is subtracted before the division, so that no temperature overflows. As T → 0 only the
largest logits keep weight, as T → ∞ all allowed keys have the same. A row of −∞ alone has weights 0, lse −∞
and gradients 0.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Float


def softmax_with_lse(
    logits: Float[Tensor, "*bh q k"], temperature: float = 1.0
) -> tuple[Float[Tensor, "*bh q k"], Float[Tensor, "*bh q"]]:
    """Weights and lse of each row of logits, where −∞ stands for a key that is not allowed.

    At T = 0 and T = ∞ the logits have no finite limit; lse is then that of their distances from the largest:
    the log of the number of keys that share the weight.
    """
    limits = torch.finfo(logits.dtype)
    if 0 < temperature < math.inf:  # what this dtype can divide by
        temperature = max(temperature, limits.tiny) if temperature <= limits.max else math.inf
    if logits.shape[-1] == 0:
        return logits, logits.new_full(logits.shape[:-1], -math.inf)
    top = logits.detach().amax(dim=-1, keepdim=True)
    top = top.masked_fill(top == -math.inf, 0.0)
    if temperature == 0 or temperature == math.inf:
        keep = logits == top if temperature == 0 else logits > -math.inf
        terms, shift = keep.to(logits.dtype), torch.zeros_like(top)
        terms = terms + 0.0 * logits.masked_fill(logits == -math.inf, 0.0)  # gradients are 0, not missing
    else:
        terms, shift = ((logits - top) / temperature).exp(), top / temperature
    total = terms.sum(dim=-1, keepdim=True)
    empty = total == 0
    total = total.masked_fill(empty, 1.0)
    lse = (total.log() + shift).masked_fill(empty, -math.inf)
    return terms / total, lse[..., 0]
