"""Where queries and keys stay while a model runs: where they are, in main memory, or in a file.

The doors hear a call, the recorder reads it, and a shelf keeps its queries and keys; whatever is made of them
later (pieces put together, steps of a generation) is made from what the shelf gave back. So how much a
recording may hold is the shelf's business alone:

    Shelf          references on the model's device          as much as the device holds
    MainMemory     copies in main memory                     as much as that holds
    FileShelf      bytes of a file, read when looked at      as much as the disk holds     (filing.py)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from regard.record.choosing import LeftOut
    from regard.record.heard import Heard, Run
    from regard.record.recording import Recording
    from regard.record.sequences import Prepared

_SPARE = 1.3  # a view is kept as it is while the storage behind it is at most this much larger


class Shelf:
    """Keeps queries and keys where they are: references; copies where these free a much larger storage."""

    def keep(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """Both without their graph, for as long as the recording lives."""
        query, key = query.detach(), key.detach()
        try:
            return _own(query), _own(key)
        except torch.OutOfMemoryError:  # the device is full: main memory is not
            return query.cpu(), key.cpu()

    def zeros(self, like: Tensor, shape: Sequence[int]) -> Tensor:
        """Room of the type and on the device of `like`, to put steps together in."""
        return like.new_zeros(tuple(shape))

    def began(self, run: Run, prepared: Prepared | None) -> None:
        """A run begins."""

    def passed(self, run: int, query: Tensor, kind: str, left_out: Sequence[LeftOut]) -> None:
        """A call ran and is not kept; `left_out` is what is remembered of it, if it is not yet."""

    def stepped(self, run: int, past: int, inputs: dict[str, Tensor]) -> None:
        """A step of a chain begins, on `past` tokens."""

    def reordered(self, run: int, order: Tensor) -> None:
        """Rows of the cache of a chain were exchanged."""

    def noted(self, run: int, heard: Heard) -> Heard:
        """A call was heard; returns what is kept of it."""
        return heard

    def finished(self, recordings: tuple[Recording, ...]) -> tuple[Recording, ...]:
        """The block ended well, and these are its recordings."""
        return recordings

    def gave_up(self, error: BaseException | None) -> None:
        """The block ended without a recording, by this error if there was one."""


class MainMemory(Shelf):
    """Copies queries and keys to main memory, call by call, so that the device only holds those of one."""

    def keep(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """Both in main memory."""
        query, key = query.detach(), key.detach()
        return tuple(_own(t) if t.device.type == "cpu" else t.cpu() for t in (query, key))  # type: ignore[return-value]

    def zeros(self, like: Tensor, shape: Sequence[int]) -> Tensor:
        """Room in main memory."""
        return torch.zeros(tuple(shape), dtype=like.dtype)


def nbytes(tensor: Tensor) -> int:
    """Bytes of the numbers of a tensor, whatever the storage behind it."""
    return tensor.numel() * tensor.element_size()


def _own(tensor: Tensor) -> Tensor:
    return tensor.clone() if tensor.untyped_storage().nbytes() > _SPARE * nbytes(tensor) else tensor
