"""What a mask is: a rule that says which key a query may attend to, evaluable on any rectangle.

    mask.tile(rows, cols, (queries, keys))[i, j] = True where query rows[i] may attend to key cols[j]

A rule knows positions, not matrices. Query i of `queries` has the position i + keys − queries: the last query
lies on the last key (bottom-right alignment), which is what decoding with a cache and chunked prefill need.
Rules combine with `&`, `|` and `~`, and no combination ever builds more than the rectangle that is asked for.

The rules themselves are in mask_rules.py and mask_blocks.py; users find all of them in masks.py.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from regard.errors import InvalidArgument

if TYPE_CHECKING:
    from jaxtyping import Bool, Int

Lengths = tuple[int, int]  # (queries, keys)


class Mask(ABC):
    """A rule that says which key a query may attend to. True = may attend."""

    rules: ClassVar[dict[str, type[Mask]]] = {}  # name in a stored state -> class
    name: ClassVar[str]

    def __init_subclass__(cls, rule: str = "", **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if rule:
            cls.name = rule
            Mask.rules[rule] = cls

    @abstractmethod
    def tile(
        self, rows: slice, cols: slice, lengths: Lengths, device: torch.device | str | None = None
    ) -> Bool[Tensor, "*bh rows cols"]:
        """The rule on a rectangle, broadcasting to (b, h, rows, cols). Slices have start and stop, and step
        1."""

    def verdict(self, rows: slice, cols: slice, lengths: Lengths) -> bool | None:
        """True when all of a rectangle is allowed, False when nothing is, None when only its cells can tell.

        What it says never needs a look at cells: a long causal attention is skipped or computed in whole
        rectangles.
        """
        return None

    def full(
        self, lengths: Lengths, device: torch.device | str | None = None
    ) -> Bool[Tensor, "*bh rows cols"]:
        """The rule on all rows and columns. O(queries · keys) memory: for small lengths, and to look at."""
        return self.tile(slice(0, lengths[0]), slice(0, lengths[1]), lengths, device)

    def natural_lengths(self) -> Lengths | None:
        """The lengths that the rule's own tensors imply, if any."""
        return None

    def of_heads(self, heads: Sequence[int]) -> Mask:
        """The rule for some heads alone, numbered anew in this order; itself where all heads share it."""
        return self

    def __and__(self, other: Mask) -> Mask:
        return And(self, other) if isinstance(other, Mask) else NotImplemented

    def __or__(self, other: Mask) -> Mask:
        return Or(self, other) if isinstance(other, Mask) else NotImplemented

    def __invert__(self) -> Mask:
        return self.of if isinstance(self, Not) else Not(self)

    def __bool__(self) -> bool:
        raise InvalidArgument(
            "masks combine with & | ~; got `and`, `or` or `not`. Write causal() & padding(lengths)."
        )

    def draw(self, queries: int, keys: int | None = None, *, item: int = 0, head: int = 0) -> str:
        """The rule as text, one line a query: ■ may attend, · may not."""
        lengths = (queries, queries if keys is None else keys)
        return self._drawn(lengths, lengths, item, head)

    def __str__(self) -> str:
        lengths = self.natural_lengths() or (8, 8)
        return f"{self!r}\n{self._drawn(lengths, (min(lengths[0], 32), min(lengths[1], 32)), 0, 0)}"

    def _drawn(self, lengths: Lengths, corner: Lengths, item: int, head: int) -> str:
        picture = self.tile(slice(0, corner[0]), slice(0, corner[1]), lengths)
        picture = picture.reshape((1,) * (4 - picture.ndim) + tuple(picture.shape))
        picture = picture[min(item, picture.shape[0] - 1), min(head, picture.shape[1] - 1)].expand(corner)
        return "\n".join(" ".join("■" if seen else "·" for seen in row) for row in picture.tolist())

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """What `from_state` needs: a dict that JSON can hold, and named tensors."""
        described: dict[str, Any] = {"rule": self.name}
        tensors: dict[str, Tensor] = {}
        for field in dataclasses.fields(self):  # type: ignore[arg-type]  # every rule is a dataclass
            value = getattr(self, field.name)
            if isinstance(value, Tensor):
                tensors[field.name] = value
            elif isinstance(value, Mask):
                described[field.name], inner = value.state()
                tensors |= {f"{field.name}.{name}": tensor for name, tensor in inner.items()}
            else:
                described[field.name] = value
        return described, tensors

    def __repr__(self) -> str:
        values = ((field.name, getattr(self, field.name)) for field in dataclasses.fields(self))  # type: ignore[arg-type]
        shown = (f"{name}={_short(value)}" for name, value in values if value is not None)
        return f"{self.name}({', '.join(shown)})"


class PositionMask(Mask):
    """A rule of the positions of query and key."""

    @abstractmethod
    def allowed(
        self, query: Int[Tensor, "rows 1"], key: Int[Tensor, " cols"], lengths: Lengths
    ) -> Bool[Tensor, "*bh rows cols"]:
        """Whether the query at a position may attend to the key at one; broadcasts to (b, h, rows, cols).

        Positions count from the first key; a query that comes before the first key has a negative one.
        """

    def tile(
        self, rows: slice, cols: slice, lengths: Lengths, device: torch.device | str | None = None
    ) -> Bool[Tensor, "*bh rows cols"]:
        queries, keys = lengths
        query = torch.arange(rows.start + keys - queries, rows.stop + keys - queries, device=device)
        return self.allowed(query[:, None], torch.arange(cols.start, cols.stop, device=device), lengths)


def from_state(described: dict[str, Any], tensors: dict[str, Tensor]) -> Mask:
    """The mask whose `state()` this is."""
    rule = Mask.rules.get(str(described.get("rule")))
    if rule is None:
        raise InvalidArgument(
            f"rule must be one of {', '.join(sorted(Mask.rules))}; got {described.get('rule')!r}. "
            "Was it stored by a newer version?"
        )
    values: dict[str, Any] = {}
    for field in dataclasses.fields(rule):  # type: ignore[arg-type]
        name = field.name
        if name in tensors:
            values[name] = tensors[name]
        elif isinstance(described.get(name), dict):
            prefix = f"{name}."
            inner = {key.removeprefix(prefix): t for key, t in tensors.items() if key.startswith(prefix)}
            values[name] = from_state(described[name], inner)
        elif name in described:
            value = described[name]
            values[name] = tuple(value) if isinstance(value, list) else value
    return rule(**values)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class And(Mask, rule="and"):
    """Allowed by both."""

    left: Mask
    right: Mask

    def tile(
        self, rows: slice, cols: slice, lengths: Lengths, device: torch.device | str | None = None
    ) -> Bool[Tensor, "*bh rows cols"]:
        return self.left.tile(rows, cols, lengths, device) & self.right.tile(rows, cols, lengths, device)

    def verdict(self, rows: slice, cols: slice, lengths: Lengths) -> bool | None:
        both = self.left.verdict(rows, cols, lengths), self.right.verdict(rows, cols, lengths)
        return False if False in both else None if None in both else True

    def natural_lengths(self) -> Lengths | None:
        return self.left.natural_lengths() or self.right.natural_lengths()

    def of_heads(self, heads: Sequence[int]) -> Mask:
        left, right = self.left.of_heads(heads), self.right.of_heads(heads)
        return self if left is self.left and right is self.right else And(left, right)

    def __repr__(self) -> str:
        return f"({self.left!r} & {self.right!r})"


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Or(Mask, rule="or"):
    """Allowed by either."""

    left: Mask
    right: Mask

    def tile(
        self, rows: slice, cols: slice, lengths: Lengths, device: torch.device | str | None = None
    ) -> Bool[Tensor, "*bh rows cols"]:
        return self.left.tile(rows, cols, lengths, device) | self.right.tile(rows, cols, lengths, device)

    def natural_lengths(self) -> Lengths | None:
        return self.left.natural_lengths() or self.right.natural_lengths()

    def of_heads(self, heads: Sequence[int]) -> Mask:
        left, right = self.left.of_heads(heads), self.right.of_heads(heads)
        return self if left is self.left and right is self.right else Or(left, right)

    def __repr__(self) -> str:
        return f"({self.left!r} | {self.right!r})"


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Not(Mask, rule="not"):
    """Allowed where the other rule forbids."""

    of: Mask

    def tile(
        self, rows: slice, cols: slice, lengths: Lengths, device: torch.device | str | None = None
    ) -> Bool[Tensor, "*bh rows cols"]:
        return ~self.of.tile(rows, cols, lengths, device)

    def natural_lengths(self) -> Lengths | None:
        return self.of.natural_lengths()

    def of_heads(self, heads: Sequence[int]) -> Mask:
        of = self.of.of_heads(heads)
        return self if of is self.of else Not(of)

    def __repr__(self) -> str:
        return f"~{self.of!r}"


def of_heads(tensor: Tensor, heads: Sequence[int]) -> Tensor:
    """Of a tensor (…, h, rows, cols) the given heads; the tensor itself where it has none, or one for all."""
    if tensor.ndim < 3 or tensor.shape[-3] == 1:
        return tensor
    if tensor.stride(-3) == 0:  # expanded: one for all, again
        return tensor.narrow(-3, 0, 1)
    return tensor.index_select(-3, torch.tensor(heads, dtype=torch.long, device=tensor.device))


def _short(value: object) -> str:
    if isinstance(value, Tensor):
        small = value.numel() <= 8 and value.device.type != "meta"
        return (
            str(value.tolist()) if small else f"{str(value.dtype).removeprefix('torch.')}{tuple(value.shape)}"
        )
    return repr(value)
