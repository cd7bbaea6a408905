"""Sliding-window attention with global tokens: O(n · window) time and memory, exact.

    query p sees key j  ⇔  p − left ≤ j ≤ p + right   or   j < global_tokens   or   0 ≤ p < global_tokens

and with causality only j ≤ p. Beltagy et al. 2020, "Longformer: The Long-Document Transformer"; with right =
0 the window of Mistral and its kind. bands.py says how; masks.window(left, right) | masks.global_tokens(n) is
the same rule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from regard.attend import operator
from regard.attend.checks import check_heads, check_key_mask, check_window
from regard.attend.reference import Attended
from regard.errors import InvalidArgument

if TYPE_CHECKING:
    from jaxtyping import Bool, Float
    from torch import Tensor


def sliding_window_attention(
    query: Float[Tensor, "b h q d"],
    key: Float[Tensor, "b g k d"],
    value: Float[Tensor, "b g k dv"],
    *,
    window: tuple[int | None, int | None],
    global_tokens: int = 0,
    causal: bool = False,
    key_mask: Bool[Tensor, "b k"] | None = None,
    scale: float | None = None,
    return_lse: bool = False,
) -> Tensor | Attended:
    """Attention in which every query sees the keys near its own position, and the global tokens.

    Arguments:
        window: keys (left, right) that a query sees on either side of its own, inclusive; the own is always
            visible and not counted. None: no limit on that side.
        global_tokens: the first n tokens see every token and are seen by every token.
        causal: no query sees a later key. The last query lies on the last key, whatever their numbers.
        key_mask: (b, k), True = no padding.
        scale: of the scores, 1/√d if not given.

    Returns the output (b, h, q, dv), or with `return_lse` an `Attended` of output and lse (b, h, q).
    Raises `InvalidArgument` if shapes, window or mask cannot be right.
    Time and memory are O((q + k) · window), forward and backward; computed in float32 or wider.

    >>> import torch
    >>> query, key, value = torch.randn(3, 1, 2, 1000, 16).unbind()
    >>> sliding_window_attention(query, key, value, window=(63, 0), global_tokens=4, causal=True).shape
    torch.Size([1, 2, 1000, 16])
    """
    check_heads(query, key, value)
    check_window(window)
    if isinstance(global_tokens, bool) or not isinstance(global_tokens, int) or global_tokens < 0:
        raise InvalidArgument(f"global_tokens must be a number of tokens ≥ 0; got {global_tokens!r}.")
    if key_mask is not None:
        check_key_mask(key_mask, query.shape[0], key.shape[2])
    reach = query.shape[2] + key.shape[2]  # further than any key
    left, right = (reach if side is None else min(side, reach) for side in window)
    numbers = (left, 0 if causal else right, min(global_tokens, key.shape[2]), int(causal))
    return operator.attend(query, key, value, key_mask, None, numbers, scale, return_lse)
