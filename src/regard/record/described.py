"""Tokens that are read from their ids when somebody looks at them, not while a model is being recorded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

from regard.record.tokens import Tokens, describe


@dataclass(eq=False)
class Described(Sequence[Tokens]):
    """The tokens of several items, as a tuple would hold them."""

    ids: list[list[int]]
    tokenizer: Any
    segments: list[list[int] | None]
    _read: tuple[Tokens, ...] | None = field(default=None, repr=False)

    @property
    def read(self) -> tuple[Tokens, ...]:
        """All of them; the tokenizer is needed no more then."""
        if self._read is None:
            rows = zip(self.ids, self.segments, strict=True)
            self._read = tuple(describe(ids, self.tokenizer, segments=marks) for ids, marks in rows)
            self.tokenizer = None
        return self._read

    @overload
    def __getitem__(self, item: int) -> Tokens: ...
    @overload
    def __getitem__(self, item: slice) -> tuple[Tokens, ...]: ...
    def __getitem__(self, item: int | slice) -> Tokens | tuple[Tokens, ...]:
        return self.read[item]

    def __iter__(self) -> Iterator[Tokens]:
        return iter(self.read)

    def __len__(self) -> int:
        return len(self.ids)

    def __eq__(self, other: object) -> bool:
        return self.read == (other.read if isinstance(other, Described) else other)

    def __hash__(self) -> int:
        return hash(self.read)

    def __reduce__(self) -> tuple[type, tuple[tuple[Tokens, ...]]]:
        return tuple, (self.read,)
