"""The path of masks that leave most of the matrix empty: windows, windows with global tokens, blocks.

Their kernels (window.py, sparse.py) touch only what is seen: O(n · window) instead of O(n²), exact. They are
asked for where what is seen is small enough for that to be faster.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import torch

from regard.attend.mask import Or
from regard.attend.mask_blocks import BlockMask
from regard.attend.mask_rules import GlobalTokens, Window
from regard.attend.problem import Problem, transformed
from regard.attend.reference import Attended
from regard.attend.sparse import block_sparse_attention
from regard.attend.window import sliding_window_attention

FEWEST_KEYS = 256
LARGEST_SHARE = 0.5  # of the keys that a query sees
SMALLEST_BLOCK = 16


class _Band(NamedTuple):
    window: tuple[int, int]
    global_tokens: int


def takes(p: Problem) -> bool:
    """On a CPU, in problems of some size whose mask is a window or made of blocks; no extras but causal and
    padding.
    """
    if p.window is None and p.mask is None:
        return False
    if (
        p.query.device.type != "cpu"
        or p.weights
        or p.bias is not None
        or p.softcap is not None
        or p.dropout_p
        or not p.mild
        or p.nothing
        or transformed()
    ):
        return False
    band, keys = _band(p), p.key.shape[2]
    if torch.compiler.is_compiling():  # lengths are symbols: a comparison would tie the graph to its outcome
        return band is not None
    if keys < FEWEST_KEYS:
        return False
    if band is not None:
        left, right = band.window
        return left + right + 1 + band.global_tokens <= LARGEST_SHARE * keys
    return _is_sparse(p)


def attend(p: Problem) -> Attended:
    """Output, and lse where wanted."""
    band, scale = _band(p), p.scale / p.temperature
    if band is not None:
        result = sliding_window_attention(
            p.query,
            p.key,
            p.value,
            window=band.window,
            global_tokens=band.global_tokens,
            causal=p.causal,
            key_mask=p.key_mask,
            scale=scale,
            return_lse=p.lse,
        )
    else:
        result = block_sparse_attention(
            p.query,
            p.key,
            p.value,
            cast(BlockMask, p.mask),  # what `takes` has seen
            causal=p.causal,
            key_mask=p.key_mask,
            scale=scale,
            return_lse=p.lse,
        )
    return result if isinstance(result, Attended) else Attended(result)


def _band(p: Problem) -> _Band | None:
    """The window and the number of global tokens, if that is all there is."""
    if p.window is not None:
        return None if p.mask is not None or None in p.window else _Band(p.window, 0)  # type: ignore[arg-type]
    if not isinstance(p.mask, Or):
        return None
    one, other = p.mask.left, p.mask.right
    if isinstance(one, GlobalTokens):
        one, other = other, one
    if (
        not (isinstance(one, Window) and isinstance(other, GlobalTokens))
        or one.left is None
        or one.right is None
    ):
        return None
    return _Band((one.left, one.right), other.n)


def _is_sparse(p: Problem) -> bool:
    """Whether the mask is made of large enough blocks, few enough of which are seen."""
    if not isinstance(p.mask, BlockMask) or p.mask.size < SMALLEST_BLOCK:
        return False
    queries, keys = p.query.shape[2], p.key.shape[2]
    if p.window is not None or queries != keys:
        return False
    layout = p.mask.layout((queries, keys))
    return layout.float().mean().item() <= LARGEST_SHARE
