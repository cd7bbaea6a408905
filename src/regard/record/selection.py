"""From what a caller writes for rows or columns to the stretch that is computed and what is taken from it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from regard.errors import InvalidArgument

Index: TypeAlias = slice | int | Sequence[int] | Tensor | None


@dataclass(frozen=True)
class Picked:
    """The smallest stretch that holds all chosen positions, and how to take them out of it."""

    hull: slice
    inside: tuple[int, ...] | int | None  # positions in the hull; an int drops the axis; None takes all of it

    @property
    def count(self) -> int:
        """How many positions are chosen."""
        hull: range = range(self.hull.start, self.hull.stop)
        return len(self.inside if isinstance(self.inside, tuple) else hull)

    def take(self, tensor: Tensor, dim: int) -> Tensor:
        """The chosen positions along axis `dim`, which runs over the hull."""
        if self.inside is None:
            return tensor
        if isinstance(self.inside, int):
            return tensor.select(dim, self.inside)
        return tensor.index_select(dim, torch.tensor(self.inside, dtype=torch.long, device=tensor.device))

    def in_pieces(self, high: int) -> Iterator[Picked]:
        """The same positions in the same order, in pieces that each lie within `high` positions."""
        if not isinstance(self.inside, tuple):
            for start in range(self.hull.start, max(self.hull.start + 1, self.hull.stop), high):
                yield Picked(slice(start, min(start + high, self.hull.stop)), self.inside)
            return
        piece: list[int] = []
        for position in self.inside:
            if piece and max(*piece, position) - min(*piece, position) >= high:
                yield self._piece(piece)
                piece = []
            piece.append(position)
        if piece:
            yield self._piece(piece)

    def _piece(self, inside: list[int]) -> Picked:
        low, top = min(inside), max(inside)
        start = self.hull.start
        return Picked(slice(start + low, start + top + 1), tuple(position - low for position in inside))


def pick(name: str, index: Index, span: range) -> Picked:
    """What `index` chooses among the positions 0 … len(span) − 1, which stand at `span` in the tensors."""
    n = len(span)
    if index is None:
        return Picked(slice(span.start, span.stop), None)
    if isinstance(index, slice):
        for bound in (index.start, index.stop):
            if bound is not None and not -n <= bound <= n:
                raise InvalidArgument(f"{name} must lie in [0, {n}); got {_shown(index)}.")
        chosen = range(*index.indices(n))
        if chosen.step == 1:
            return Picked(slice(span.start + chosen.start, span.start + max(chosen.start, chosen.stop)), None)
        return _hull(tuple(chosen), span)
    if isinstance(index, bool):
        raise InvalidArgument(f"{name} must be a position, a slice or a sequence of positions; got {index}.")
    if isinstance(index, int):
        position = _inside(name, index, n)
        return Picked(slice(span.start + position, span.start + position + 1), 0)
    values = index.tolist() if isinstance(index, Tensor) else index
    if not isinstance(values, Sequence) or isinstance(values, str):
        return pick(name, int(values), span) if isinstance(values, int) else _refuse(name, index)
    if not all(isinstance(value, int) and not isinstance(value, bool) for value in values):
        return _refuse(name, index)
    return _hull(tuple(_inside(name, value, n) for value in values), span)


def _hull(chosen: tuple[int, ...], span: range) -> Picked:
    if not chosen:
        return Picked(slice(span.start, span.start), None)
    first, last = min(chosen), max(chosen)
    hull = slice(span.start + first, span.start + last + 1)
    return Picked(hull, tuple(position - first for position in chosen))


def _inside(name: str, position: int, n: int) -> int:
    if not -n <= position < n:
        raise InvalidArgument(
            f"{name} must lie in [0, {n}); got {position}. recording.shape(layer) gives the limits."
        )
    return position % n


def _refuse(name: str, index: object) -> Picked:
    raise InvalidArgument(
        f"{name} must be a position, a slice or a sequence of positions; got {type(index).__name__}."
    )


def _shown(index: slice) -> str:
    start = "" if index.start is None else index.start
    return f"{start}:{'' if index.stop is None else index.stop}"
