"""From the mask that a model built to the rule that it follows, so that n × n booleans need not be kept.

Tried in this order, each verified on every cell before it is believed: nothing forbidden; the same keys for
every query (padding); a window around the own position, of which causal is the one without limit to the
left; texts packed into one sequence, or chunks; a prefix that all see. Each together with padding.
Whatever follows none of these is kept as it is. A float mask of 0 and "minus infinity" (or the smallest
number of its type) is boolean; other numbers in it are kept as a bias.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from regard.attend import masks
from regard.attend.mask import Mask

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

_ROWS_AT_ONCE = 1024


def rule_of(mask: Tensor | None, causal: bool, lengths: tuple[int, int]) -> tuple[Mask | None, Tensor | None]:
    """(rule, bias) of the mask that an attention was called with: boolean (True = may attend) or to be added.

    `causal` is an upper-left triangle besides the mask; `lengths` are (queries, keys).
    """
    rule: Mask | None = None
    bias: Tensor | None = None
    if mask is not None:
        mask = mask.detach()
        mask = mask.reshape((1,) * (4 - mask.ndim) + tuple(mask.shape))
        if mask.dtype == torch.bool:
            rule = _rule_of_booleans(mask, lengths)
        else:
            allowed = mask > torch.finfo(mask.dtype).min / 2
            rule = _rule_of_booleans(allowed, lengths)
            numbers = mask.masked_fill(~allowed, 0.0)
            if bool(numbers.any()):
                bias = _compact(numbers)
    if causal:
        triangle = _upper_left(lengths)
        rule = triangle if rule is None else triangle & rule
    return rule, bias


def _rule_of_booleans(allowed: Bool[Tensor, "b h q k"], lengths: tuple[int, int]) -> Mask | None:
    if bool(allowed.all()):
        return None
    allowed = allowed.expand(*allowed.shape[:2], allowed.shape[2], lengths[1])
    if allowed.shape[1] > 1:
        return masks.dense(_compact(allowed))
    if allowed.shape[2] == 1 or allowed.stride(2) == 0 or bool((allowed == allowed[:, :, :1]).all()):
        return masks.padding(allowed[:, 0, 0].clone())
    for find in (_window, _documents, _prefix):
        for rule in find(allowed, lengths):
            # Padding is what no query may see.
            for candidate in (rule, rule & masks.padding(allowed[:, 0].any(1))):
                if _explains(candidate, allowed, lengths):
                    return candidate
    return masks.dense(_compact(allowed))


def _window(allowed: Bool[Tensor, "b 1 q k"], lengths: tuple[int, int]) -> list[Mask]:
    """The narrowest window that leaves no allowed key outside."""
    queries, keys = lengths
    numbers = allowed[:, 0].to(torch.uint8)
    row_has_any = allowed[:, 0].any(-1)
    position = torch.arange(queries, device=allowed.device) + keys - queries
    left = int((position - numbers.argmax(-1)).masked_fill(~row_has_any, 0).amax())
    right = int((keys - 1 - numbers.flip(-1).argmax(-1) - position).masked_fill(~row_has_any, 0).amax())
    if left < 0 or right < 0:
        return []
    if right == 0 and left >= keys - 1:
        return [masks.causal()]
    return [masks.window(_limit(left, keys), _limit(right, keys))]


def _documents(allowed: Bool[Tensor, "b 1 q k"], lengths: tuple[int, int]) -> list[Mask]:
    """Texts packed into one, or chunks: a document begins where a query sees nothing before itself."""
    if lengths[0] != lengths[1]:
        return []
    first = allowed[:, 0].to(torch.uint8).argmax(-1)
    begins = first == torch.arange(lengths[0], device=allowed.device)
    ids = _compact(begins.cumsum(-1, dtype=torch.int32)[:, None, None])[:, 0, 0]
    rule = masks.documents(ids if len(ids) > 1 else ids[0])
    return [rule & masks.causal(), rule]


def _prefix(allowed: Bool[Tensor, "b 1 q k"], lengths: tuple[int, int]) -> list[Mask]:
    """Causal, but for some first keys that all see: those that the first query sees."""
    after = allowed[:, 0, 0].flip(-1).to(torch.uint8).argmax(-1)
    return [masks.causal() | masks.prefix(lengths[1] - after)]


def _limit(distance: int, keys: int) -> int | None:
    return None if distance >= keys - 1 else distance


def _explains(rule: Mask, allowed: Bool[Tensor, "b 1 q k"], lengths: tuple[int, int]) -> bool:
    for start in range(0, lengths[0], _ROWS_AT_ONCE):
        rows = slice(start, min(start + _ROWS_AT_ONCE, lengths[0]))
        tile = rule.tile(rows, slice(0, lengths[1]), lengths, allowed.device)
        if not bool((tile == allowed[:, :, rows]).all()):
            return False
    return True


def _upper_left(lengths: tuple[int, int]) -> Mask:
    """Key j ≤ query i, both counted from 0; rules align the last ones, which differs for unequal lengths."""
    queries, keys = lengths
    if queries == keys:
        return masks.causal()
    return masks.dense(torch.ones(queries, keys, dtype=torch.bool).tril())


def _compact(tensor: Float[Tensor, "b h q k"] | Bool[Tensor, "b h q k"]) -> Tensor:
    """Without what repeats along items, heads or queries."""
    for axis in (0, 1, 2):
        if tensor.shape[axis] > 1:
            first = tensor.narrow(axis, 0, 1)
            if bool((tensor == first).all()):
                tensor = first
    return (
        tensor.contiguous() if tensor.is_contiguous() else tensor.clone(memory_format=torch.contiguous_format)
    )
