"""Block-sparse attention: every block of queries sees the blocks of keys that a mask names, at their cost
alone.

    query i sees key j  ⇔  block_mask[i // size, j // size]      (and with causality only j ≤ the position of
    i)

Child et al. 2019, "Generating Long Sequences with Sparse Transformers"; Zaheer et al. 2020, "Big Bird".
blocks.py says how. The rules of regard.masks that are made of blocks (`masks.bigbird()`,
`masks.blocks(layout, size=64)`) can be handed over as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from regard.attend import operator
from regard.attend.checks import check_heads, check_key_mask
from regard.attend.mask_blocks import BlockMask
from regard.attend.reference import Attended
from regard.errors import InvalidArgument

if TYPE_CHECKING:
    from jaxtyping import Bool, Float
    from torch import Tensor


def block_sparse_attention(
    query: Float[Tensor, "b h q d"],
    key: Float[Tensor, "b g k d"],
    value: Float[Tensor, "b g k dv"],
    block_mask: Bool[Tensor, "*bh r c"] | BlockMask,
    *,
    block_size: int = 64,
    causal: bool = False,
    key_mask: Bool[Tensor, "b k"] | None = None,
    scale: float | None = None,
    return_lse: bool = False,
) -> Tensor | Attended:
    """Attention of blocks of queries to the blocks of keys that they are allowed to see.

    Arguments:
        block_mask: (r, c), (heads, r, c) or (batch, heads, r, c), True = may attend, where r = ⌈q /
            block_size⌉ and c = ⌈k / block_size⌉; or a rule of blocks, which brings its own size.
        block_size: queries, and keys, of a block; the last block may be shorter. Fastest from 32 on.
        causal: no query sees a later key. The last query lies on the last key, whatever their numbers.
        key_mask: (b, k), True = no padding.
        scale: of the scores, 1/√d if not given.

    Returns the output (b, h, q, dv), or with `return_lse` an `Attended` of output and lse (b, h, q). A query
    that sees no key has output 0 and lse −∞.
    Raises `InvalidArgument` if shapes or masks cannot be right.
    Time and memory are O(blocks seen · block_size²) and O(q + k), forward and backward; float32 or wider.

    >>> import torch
    >>> from regard import masks
    >>> query, key, value = torch.randn(3, 1, 2, 1000, 16).unbind()
    >>> block_sparse_attention(query, key, value, masks.bigbird(64)).shape
    torch.Size([1, 2, 1000, 16])
    """
    check_heads(query, key, value)
    if key_mask is not None:
        check_key_mask(key_mask, query.shape[0], key.shape[2])
    lengths = query.shape[2], key.shape[2]
    if isinstance(block_mask, BlockMask):
        block_size = block_mask.size
        block_mask = _layout(block_mask, lengths, query.device)
    if isinstance(block_size, bool) or not isinstance(block_size, int) or block_size < 1:
        raise InvalidArgument(f"block_size must be a number of positions ≥ 1; got {block_size!r}.")
    _check_block_mask(block_mask, query.shape[:2], tuple(-(-n // block_size) for n in lengths))
    while block_mask.ndim < 4:
        block_mask = block_mask[None]
    return operator.attend(
        query, key, value, key_mask, block_mask, (block_size, int(causal)), scale, return_lse
    )


def _layout(rule: BlockMask, lengths: tuple[int, int], device: torch.device) -> Bool[Tensor, "*bh r c"]:
    """The rule's rows of the queries at hand, whose positions begin at keys − queries."""
    offset = lengths[1] - lengths[0]
    if offset < 0 or offset % rule.size:
        raise InvalidArgument(
            "with a rule of blocks there must be as many queries as keys, or fewer by whole blocks of "
            f"{rule.size}; got {lengths[0]} and {lengths[1]}. Hand the block mask over as a tensor, its rows "
            "counted from the first query."
        )
    rows, cols = (-(-n // rule.size) for n in lengths)
    skipped = offset // rule.size
    return rule.layout(lengths, device)[..., skipped : skipped + rows, :cols]


def _check_block_mask(block_mask: Tensor, heads: tuple[int, ...], blocks: tuple[int, ...]) -> None:
    if not isinstance(block_mask, torch.Tensor) or block_mask.dtype != torch.bool:
        got = block_mask.dtype if isinstance(block_mask, torch.Tensor) else type(block_mask).__name__
        raise InvalidArgument(
            f"block_mask must be boolean, True = may attend; got {got}. Write block_mask != 0."
        )
    shape, full = tuple(block_mask.shape), (*heads, *blocks)
    fits = 2 <= len(shape) <= 4 and shape[-2:] == blocks
    if not fits or any(size not in (1, n) for size, n in zip(shape, full[-len(shape) :], strict=True)):
        raise InvalidArgument(
            f"block_mask must have the shape {blocks}, with heads or batch and heads in front; got {shape}."
        )
