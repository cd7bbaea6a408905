"""The path through PyTorch's own choice of kernels, for every device that is not a CPU.

`torch.nn.functional.scaled_dot_product_attention` picks FlashAttention, cuDNN, memory-efficient attention or
Metal. It makes different things of a row that sees no key, so no such row reaches it: the row is shown every
key, and its output, with its gradients, is set to 0 afterwards.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from torch.nn.functional import scaled_dot_product_attention

from regard.attend.hidden import without_hidden
from regard.attend.problem import Problem, transformed
from regard.attend.reference import Attended

if TYPE_CHECKING:
    from torch import Tensor


def takes(p: Problem) -> bool:
    """On other devices, where nothing but the output is wanted and no extra that the kernels lack."""
    return (
        p.query.device.type != "cpu"
        and not (p.weights or p.lse)
        and p.softcap is None
        and not p.dropout_p
        and p.mild
        and not p.nothing
        and not transformed()
    )


def attend(problem: Problem) -> Attended:
    """The output."""
    p = without_hidden(problem) if problem.hides else problem
    key, value, bias = p.key, p.value, p.bias
    if p.group > 1:
        key, value = (x.repeat_interleave(p.group, dim=1) for x in (key, value))
    if bias is not None:
        bias = (bias / p.temperature).to(p.query.dtype)
    square = p.causal and p.query.shape[2] == p.key.shape[2] and not (p.window or p.bias is not None)
    allowed = None if square and p.key_mask is None and p.mask is None else p.allowed()
    empty: Tensor | None = None
    added: Tensor | None = bias
    if allowed is not None:
        empty = ~allowed.any(dim=-1, keepdim=True)
        allowed = allowed | empty
        added = allowed if bias is None else bias.masked_fill(~allowed, -math.inf)
        added = added.reshape((1,) * (4 - added.ndim) + tuple(added.shape))
        if bias is not None:
            added = added.masked_fill(empty, 0.0)
    output = scaled_dot_product_attention(
        p.query,
        key,
        value,
        attn_mask=added,
        is_causal=allowed is None and p.causal,
        scale=p.scale / p.temperature,
    )
    return Attended(output if empty is None else output.masked_fill(empty, 0.0))
