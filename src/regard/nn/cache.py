"""What decoding remembers: keys and values of all tokens so far, so that a new one costs a row and no square.

    step t:  K ← [K; k_t],  V ← [V; v_t],  o_t = attention(q_t, K, V)

Three kinds, one class: growing (doubles its memory, so a token costs O(1) copies on average), static (a fixed
capacity, allocated once) and sliding (only the last `window` tokens are kept, for windowed attention).
Source: Shazeer 2019, "Fast Transformer Decoding", §2.3 (incremental inference); Beltagy et al. 2020 (sliding
window).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from regard.errors import InvalidArgument

if TYPE_CHECKING:
    from jaxtyping import Float

_FIRST = 64  # slots of a growing cache at its first allocation


class KVCache:
    """Keys and values of the tokens seen so far, for one attention layer.

    Args:
        capacity: a static cache of that many tokens; one token more is an error.
        window: a sliding cache: the keys handed out are the new ones and the `window` tokens before them,
            which is what attention with `window=(window, 0)` may see. Memory stays O(window) whatever the
            length.

    With neither, the cache grows. Memory is taken at the first `append`, in the dtype and on the device of
    its keys. Tensors handed out are views that stay as they are: later appends never change them.

    Attributes:
        length: tokens appended so far, which is the position of the next one.
        start: position of the first key that the last `append` handed out (above 0 only in a sliding cache).

    Raises:
        InvalidArgument: if both or a negative number are given.

    Example:
        >>> import torch
        >>> cache = KVCache(window=2)
        >>> for step in range(5):
        ...     keys, values = cache.append(torch.full((1, 1, 1, 1), step), torch.zeros(1, 1, 1, 1))
        >>> keys.flatten().tolist(), cache.start, cache.length
        ([2, 3, 4], 2, 5)
    """

    def __init__(self, *, capacity: int | None = None, window: int | None = None) -> None:
        if capacity is not None and window is not None:
            raise InvalidArgument("give capacity or window, not both: a cache is static or sliding.")
        if capacity is not None and capacity < 1:
            raise InvalidArgument(f"capacity must be at least 1; got {capacity}.")
        if window is not None and window < 0:
            raise InvalidArgument(f"window must be 0 or more; got {window}.")
        self.capacity, self.window = capacity, window
        self.reset()

    def reset(self) -> None:
        """Forget everything, memory included."""
        self.length, self.start = 0, 0
        self._end = 0  # slots in use
        self._keys: Tensor | None = None
        self._values: Tensor | None = None

    def append(
        self, key: Float[Tensor, "b g n c"], value: Float[Tensor, "b g n cv"]
    ) -> tuple[Float[Tensor, "b g k c"], Float[Tensor, "b g k cv"]]:
        """Remember the keys and values of n more tokens, and hand out all that their queries may need.

        Raises:
            InvalidArgument: if a static cache would overflow, if shapes do not go with what is stored, or if
                the keys require gradients.
        """
        self._check(key, value)
        new = key.shape[2]
        keys, values = self._room(key, value)
        end = self._end + new
        keys[:, :, self._end : end] = key
        values[:, :, self._end : end] = value
        first = 0 if self.window is None else max(0, self._end - self.window)
        self._end = end
        self.length += new
        self.start = self.length - (end - first)
        return keys[:, :, first:end], values[:, :, first:end]

    def read(self) -> tuple[Float[Tensor, "b g k c"], Float[Tensor, "b g k cv"]]:
        """All that is stored, without adding to it.

        Raises:
            InvalidArgument: if nothing was appended yet.
        """
        if self._keys is None or self._values is None:
            raise InvalidArgument("the cache is empty; append keys and values before reading it.")
        return self._keys[:, :, : self._end], self._values[:, :, : self._end]

    def _room(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """The buffers, with space for the new tokens: what they hold is moved only when there is none
        left.
        """
        new, size = key.shape[2], 0 if self._keys is None else self._keys.shape[2]
        if self._keys is not None and self._values is not None and self._end + new <= size:
            return self._keys, self._values
        kept = self._end if self.window is None else min(self._end, self.window)
        if self.capacity is not None:
            size = self.capacity
        elif self.window is not None:
            size = 2 * self.window + new
        else:
            size = max(_FIRST, 2 * size, kept + new)
        self._keys = _moved(self._keys, key, size, self._end, kept)
        self._values = _moved(self._values, value, size, self._end, kept)
        self._end = kept
        return self._keys, self._values

    def _check(self, key: Tensor, value: Tensor) -> None:
        if key.dim() != 4 or value.dim() != 4 or key.shape[:3] != value.shape[:3]:
            raise InvalidArgument(
                "key and value must be (batch, kv_heads, length, channels) with the first three equal; "
                f"got {tuple(key.shape)} and {tuple(value.shape)}."
            )
        if torch.is_grad_enabled() and (key.requires_grad or value.requires_grad):
            raise InvalidArgument(
                "a cache keeps no gradients, and key or value requires one. "
                "Run the model under torch.no_grad()."
            )
        if self.capacity is not None and self.length + key.shape[2] > self.capacity:
            raise InvalidArgument(
                f"the cache holds at most capacity={self.capacity} tokens; "
                f"got {self.length} + {key.shape[2]}. Give a larger capacity, or none and it grows."
            )
        for name, stored, given in (("key", self._keys, key), ("value", self._values, value)):
            if stored is None:
                continue
            expected = (*stored.shape[:2], given.shape[2], stored.shape[3])
            if tuple(given.shape) != expected or given.dtype != stored.dtype:
                raise InvalidArgument(
                    f"{name} must have shape {expected} and {stored.dtype} like what the cache holds; "
                    f"got {tuple(given.shape)} and {given.dtype}. "
                    "Use one cache for one layer and batch, or reset() it."
                )

    @property
    def device(self) -> torch.device | None:
        """Where the keys lie; None before the first `append`."""
        return None if self._keys is None else self._keys.device

    def __len__(self) -> int:
        return self.length

    def __repr__(self) -> str:
        kind = "growing" if self.capacity is None else f"capacity={self.capacity}"
        kind = kind if self.window is None else f"window={self.window}"
        return f"KVCache({kind}, length={self.length})"


def _moved(old: Tensor | None, like: Tensor, size: int, end: int, kept: int) -> Tensor:
    """A buffer of `size` slots that begins with the last `kept` of the first `end` slots of the old one."""
    batch, groups, _, channels = like.shape
    buffer = like.new_empty(batch, groups, size, channels)
    if old is not None and kept:
        buffer[:, :, :kept] = old[:, :, end - kept : end]
    return buffer


class BlockCache(NamedTuple):
    """What one block remembers: its own tokens, and (with cross-attention) the projected memory."""

    own: KVCache
    memory: KVCache | None = None
