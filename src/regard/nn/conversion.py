"""To and from torch.nn.MultiheadAttention, with equal outputs.

    in_proj_weight = [W_Q; W_K; W_V]   ⇄   Projections.parts()

What differs and stays different: torch's boolean masks say True = may *not* attend, ours True = may; torch
averages the weights over heads unless told not to; a row that may see nothing is NaN there and 0 (plus the
output's bias) here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor, nn

from regard.errors import InvalidArgument

if TYPE_CHECKING:
    from regard.nn.multi_head import MultiHeadAttention

M = TypeVar("M", bound="MultiHeadAttention")


def from_torch(cls: type[M], module: nn.MultiheadAttention, *, causal: bool = False) -> M:
    """A module of ours that gives the same outputs as a torch.nn.MultiheadAttention, with a copy of its
    weights.

    Every option of torch's is taken over: dropout, bias, add_bias_kv, add_zero_attn, kdim, vdim, batch_first,
    device, dtype and whether it is in training. Torch is told at each call whether attention is causal; ours
    is told here.

    Raises:
        InvalidArgument: if `module` is something else.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from regard.nn import MultiHeadAttention
        >>> theirs = nn.MultiheadAttention(16, 4, batch_first=True)
        >>> ours, x = MultiHeadAttention.from_torch(theirs), torch.randn(2, 3, 16)
        >>> torch.allclose(ours(x), theirs(x, x, x)[0], atol=1e-6)
        True
    """
    if not isinstance(module, nn.MultiheadAttention):
        raise InvalidArgument(f"module must be a torch.nn.MultiheadAttention; got {type(module).__name__}.")
    like = module.out_proj.weight
    ours = cls(
        module.embed_dim,
        module.num_heads,
        d_key_input=module.kdim,
        d_value_input=module.vdim,
        bias=module.in_proj_bias is not None,
        causal=causal,
        dropout=module.dropout,
        add_bias_kv=module.bias_k is not None,
        add_zero_attn=module.add_zero_attn,
        batch_first=module.batch_first,
        device=like.device,
        dtype=like.dtype,
    )
    _copy(_pairs(ours, module), towards_torch=False)
    return ours.train(module.training)


def to_torch(self: MultiHeadAttention) -> nn.MultiheadAttention:
    """A torch.nn.MultiheadAttention that gives the same outputs as this module, with a copy of its weights.

    Raises:
        InvalidArgument: if this module does something that torch's can not; the message names it.
    """
    parts = self.projections
    usual = self.d_model // self.num_heads if self.d_model % self.num_heads == 0 else None
    reasons = {
        "num_kv_heads": parts.num_kv_heads != parts.num_heads,
        "d_k": parts.d_k != usual,
        "d_v": parts.d_v != usual,
        "output_bias": (self.output.bias is None) != (parts.parts()[0][1] is None),
        "causal": self.causal,
        "window": self.window is not None,
        "positions": self.positions is not None,
        "qk_norm": self.query_norm is not None,
        "scale": self.scale is not None and self.scale != parts.d_k**-0.5,
        "softcap": self.softcap is not None,
        "output_dropout": self.output_dropout > 0,
    }
    found = [name for name, is_there in reasons.items() if is_there]
    if found:
        remedy = " Torch is told at each call what is causal (attn_mask)." if found == ["causal"] else ""
        raise InvalidArgument(
            f"torch.nn.MultiheadAttention has no counterpart for {', '.join(found)} of this module.{remedy}"
        )
    like = self.output.weight
    theirs = nn.MultiheadAttention(
        self.d_model,
        self.num_heads,
        dropout=self.dropout,
        bias=self.output.bias is not None,
        add_bias_kv=self.extra.learned,
        add_zero_attn=self.extra.zero,
        kdim=parts.d_key_input,
        vdim=parts.d_value_input,
        batch_first=self.batch_first,
        device=like.device,
        dtype=like.dtype,
    )
    _copy(_pairs(self, theirs), towards_torch=True)
    return theirs.train(self.training)


def _pairs(
    ours: MultiHeadAttention, theirs: nn.MultiheadAttention
) -> list[tuple[Tensor | None, Tensor | None]]:
    """Tensors of both modules that hold the same numbers, ours first."""
    weights, biases = zip(*ours.projections.parts(), strict=True)
    if theirs.in_proj_weight is None:
        packed = (theirs.q_proj_weight, theirs.k_proj_weight, theirs.v_proj_weight)
    else:
        packed = theirs.in_proj_weight.chunk(3)
    packed_bias = (None,) * 3 if theirs.in_proj_bias is None else theirs.in_proj_bias.chunk(3)
    return [
        *zip(weights, packed, strict=True),
        *zip(biases, packed_bias, strict=True),
        (ours.output.weight, theirs.out_proj.weight),
        (ours.output.bias, theirs.out_proj.bias),
        (ours.extra.key, theirs.bias_k),
        (ours.extra.value, theirs.bias_v),
    ]


@torch.no_grad()
def _copy(pairs: list[tuple[Tensor | None, Tensor | None]], *, towards_torch: bool) -> None:
    for ours, theirs in pairs:
        if ours is not None and theirs is not None:
            source, target = (ours, theirs) if towards_torch else (theirs, ours)
            target.copy_(source.reshape(target.shape))
