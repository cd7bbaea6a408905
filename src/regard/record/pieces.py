"""Calls that are pieces of one attention, put together again.

Vision towers of the Qwen2-VL kind pack several images into one sequence and call their attention once for
each piece:

    q, k, v = split(q), split(k), split(v);   output = concat(attention(q_i, k_i, v_i) for each i)

That is one attention in which no piece sees another (Dehghani et al. 2023, "Patch n' Pack"), so it is one
site here. Pieces are recognised by their memory: consecutive calls of a module whose queries lie one after
another in one tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from jaxtyping import Int
    from torch import Tensor


@dataclass(frozen=True)
class Place:
    """Where in memory a tensor began to lie, and whether it is but a part of what lies there."""

    storage: int
    offset: int
    part: bool

    @classmethod
    def of(cls, tensor: Tensor) -> Place:
        """The place of a tensor."""
        storage = tensor.untyped_storage()
        part = tensor.numel() * tensor.element_size() < storage.nbytes()
        return cls(storage.data_ptr(), int(tensor.storage_offset()), part)

    def continues(self, before: Place) -> bool:
        """Whether this is a later part of the same memory."""
        return self.part and before.part and self.storage == before.storage and self.offset > before.offset


def runs_of(names: Sequence[str], places: Sequence[Place], whole: Sequence[bool]) -> list[range]:
    """The calls that belong together, as ranges; one that is `whole` for certain stays alone."""
    runs: list[range] = []
    for i, name in enumerate(names):
        last = runs[-1][-1] if runs else None
        same = last is not None and name == names[last] and not (whole[i] or whole[last])
        if last is not None and same and places[i].continues(places[last]):
            runs[-1] = range(runs[-1].start, i + 1)
        else:
            runs.append(range(i, i + 1))
    return runs


def document_ids(lengths: Sequence[int]) -> Int[Tensor, " n"]:
    """For each position, the number of the piece that it lies in."""
    return torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
