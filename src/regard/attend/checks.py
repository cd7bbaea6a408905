"""What can be wrong with the arguments of an attention, each in one sentence with its remedy.

The checks read shapes, dtypes and numbers, never the contents of a tensor: they cost a few microseconds, wait
for no device, and leave no trace in a compiled graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from regard.attend.mask import Mask
from regard.errors import InvalidArgument

if TYPE_CHECKING:
    from jaxtyping import Float

Window = tuple[int | None, int | None]


def check_heads(
    query: Float[Tensor, "b h q d"], key: Float[Tensor, "b g k d"], value: Float[Tensor, "b g k dv"]
) -> None:
    """Refuse queries, keys and values that do not fit each other."""
    q, k, v = query.shape, key.shape, value.shape
    if not (len(q) == len(k) == len(v) == 4):
        raise InvalidArgument(
            "query, key and value must have the shape (batch, heads, length, channels); "
            f"got {tuple(q)}, {tuple(k)} and {tuple(v)}. Add an axis with tensor[:, None] for one head."
        )
    if k[:3] != v[:3]:
        raise InvalidArgument(
            f"key and value must agree in batch, heads and length; got {tuple(k[:3])} and {tuple(v[:3])}."
        )
    if q[0] != k[0]:
        raise InvalidArgument(
            f"query and key must have the same batch size; got {q[0]} and {k[0]}. "
            "Write key.expand(batch, -1, -1, -1) to share the keys."
        )
    if q[3] != k[3]:
        raise InvalidArgument(f"query and key must have as many channels; got {q[3]} and {k[3]}.")
    if q[1] != k[1] and (k[1] == 0 or q[1] % k[1]):
        raise InvalidArgument(
            f"the query heads must be a multiple of the key heads in number; got {q[1]} and {k[1]}."
        )
    dtype = query.dtype
    if not (dtype == key.dtype == value.dtype and dtype.is_floating_point):
        raise InvalidArgument(
            "query, key and value must share one floating dtype; "
            f"got {dtype}, {key.dtype} and {value.dtype}. Convert them with .to(dtype)."
        )
    if not (query.device == key.device == value.device):
        raise InvalidArgument(
            "query, key and value must lie on one device; "
            f"got {query.device}, {key.device} and {value.device}."
        )


def check_mask(mask: Tensor | Mask, shape: tuple[int, int, int, int]) -> None:
    """Refuse a mask that is not boolean, or does not broadcast to (batch, heads, queries, keys)."""
    if isinstance(mask, Mask):
        return
    if not isinstance(mask, Tensor):
        raise InvalidArgument(
            f"mask must be a boolean tensor or a rule of regard.masks; got {type(mask).__name__}."
        )
    if mask.dtype != torch.bool:
        raise InvalidArgument(
            f"mask must be boolean, True = may attend; got {mask.dtype}. "
            "Write mask != 0 for a 0/1 mask, or hand numbers to be added to the scores over as bias."
        )
    check_broadcast("mask", mask, shape)


def check_bias(bias: Tensor, shape: tuple[int, int, int, int]) -> None:
    """Refuse a bias that is not a float, or does not broadcast to (batch, heads, queries, keys)."""
    if not isinstance(bias, Tensor) or not bias.dtype.is_floating_point:
        got = bias.dtype if isinstance(bias, Tensor) else type(bias).__name__
        raise InvalidArgument(
            f"bias must be a floating tensor, added to the scores; got {got}. "
            "Hand a boolean that says who may attend over as mask."
        )
    check_broadcast("bias", bias, shape)


def check_broadcast(name: str, tensor: Tensor, shape: tuple[int, int, int, int]) -> None:
    """Refuse any rank but 2 and 4: with three axes nobody can tell a batch from heads."""
    got = tensor.shape
    if len(got) not in (2, 4):
        raise InvalidArgument(
            f"{name} must have the shape (queries, keys) or (batch, heads, queries, keys); got {tuple(got)}. "
            f"Write {name}[:, None] for one per item, {name}[None] for one per head."
        )
    if any(size not in (1, full) for size, full in zip(got, shape[-len(got) :], strict=True)):
        raise InvalidArgument(f"{name} must broadcast to {tuple(shape)}; got {tuple(got)}.")


def check_key_mask(key_mask: Tensor, batch: int, keys: int) -> None:
    """Refuse a key mask that is not a boolean of shape (batch, keys)."""
    if not isinstance(key_mask, Tensor) or key_mask.dtype != torch.bool:
        got = key_mask.dtype if isinstance(key_mask, Tensor) else type(key_mask).__name__
        raise InvalidArgument(
            f"key_mask must be a boolean tensor, True = no padding; got {got}. "
            "Write key_mask != 0 for a 0/1 mask."
        )
    shape = tuple(key_mask.shape)
    if len(shape) != 2 or shape[0] not in (1, batch) or shape[1] != keys:
        raise InvalidArgument(f"key_mask must have the shape (batch, keys) = ({batch}, {keys}); got {shape}.")


def check_window(window: Window) -> None:
    """Refuse what is no pair of whole numbers ≥ 0 (None: no limit on that side)."""
    if not isinstance(window, tuple) or len(window) != 2:
        raise InvalidArgument(
            f"window must be a pair (left, right) of numbers of keys; got {window!r}. "
            "Write (n, 0) for the last n."
        )
    for side in window:
        if side is not None and (isinstance(side, bool) or not isinstance(side, int) or side < 0):
            raise InvalidArgument(
                f"window must count keys ≥ 0 on either side, or None for no limit; got {window!r}. "
                "The own position is always visible and not counted."
            )


def check_numbers(scale: float | None, temperature: float, softcap: float | None, dropout_p: float) -> None:
    """Refuse numbers that no attention can have. Written so that not-a-number fails every comparison."""
    if not temperature >= 0:
        raise InvalidArgument(
            f"temperature must be ≥ 0, 0 for the argmax and math.inf for the uniform mean; got {temperature}."
        )
    if scale is not None and not abs(scale) < float("inf"):
        raise InvalidArgument(f"scale must be a finite number, None for 1 / √channels; got {scale}.")
    if softcap is not None and not 0 < softcap < float("inf"):
        raise InvalidArgument(f"softcap must be a finite number > 0, None for no cap; got {softcap}.")
    if not 0 <= dropout_p <= 1:
        raise InvalidArgument(f"dropout_p must lie in [0, 1]; got {dropout_p}.")
