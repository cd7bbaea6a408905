"""What need not be kept of a call while the model still runs: attentions and heads that nobody asked for.

An attention is left out at once, and its memory is free, where its kind or its layer is certain. The layer
is when the module's name says it: a number that no other attention of its class shares in its stack, a stack
with several such numbers (ALBERT calls one module for all layers), a module that stands in one place only
(Zamba's stands in several). Everything else is kept until all calls are known, and chosen then.

That a name told the truth is seen at the end, when all are numbered (layers.py): `check` raises where it did
not, and the model must run again with everything kept.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor, nn

from regard.errors import InvalidArgument
from regard.record.call import Call
from regard.record.heads import Cut
from regard.record.keeping import Keep
from regard.record.layers import kind_of, stack_of
from regard.record.pieces import Place
from regard.words import say


class Unclear(InvalidArgument):
    """The layers of a model cannot be told by its modules' names; record all, and choose then."""


@dataclass(frozen=True)
class LeftOut:
    """An attention that ran and of which nothing is kept."""

    name: str
    layer: int  # as its name says
    kind: str
    by_layer: bool
    query: Tensor  # of the shape that it had, ...
    key: Tensor  # ... without heads and channels


@dataclass
class Calls:
    """What is remembered of the calls of one run, or of one step, beside those that are kept."""

    items: int = 0
    queries: int = 0  # of the longest that reads its own sequence
    left_out: list[LeftOut] = field(default_factory=list)

    def note(self, query: Tensor, kind: str) -> None:
        """A call with these queries, kept or not."""
        self.items = query.shape[0]
        if kind != "cross":
            self.queries = max(self.queries, query.shape[2])


class Choice:
    """What of the calls of one model need not be kept; for one recorder."""

    def __init__(self, keep: Keep, model: nn.Module) -> None:
        self._keep = keep
        self._certain = _certain(model) if keep.layers is not None or keep.kinds is not None else {}
        self._cuts: dict[tuple[int, int], Cut | None] = {}
        # The queries of the last call stay alive until the next: so what lies at their place in memory is
        # the same, or a later piece of it, and never another call's.
        self._last: tuple[str, Tensor, Place] | None = None

    def leaves_out(self, name: str, kind: str, call: Call, calls: Calls) -> bool:
        """Whether nothing of this call is kept; it is then noted in `calls`."""
        if self._keep.layers is None and self._keep.heads is None and self._keep.kinds is None:
            return False
        place = Place.of(call.query)
        before, self._last = self._last, (name, call.query, place)
        if name not in self._certain:
            return False
        number = self._certain[name]
        told = kind if kind in ("causal", "cross") else "causal" if call.causal or call.triangle else "self"
        by_layer = number is not None and self._keep.layers is not None and number not in self._keep.layers
        # A module that does not call itself causal may turn out to be, by its mask.
        possible = (told,) if told != "self" else ("self", "causal")
        by_kind = self._keep.kinds is not None and not any(one in self._keep.kinds for one in possible)
        if not by_layer and not by_kind:
            return False
        same = before is not None and before[0] == name and (place == before[2] or place.continues(before[2]))
        if not same:
            shapes = (call.query[:, :0, :, :0].detach().clone(), call.key[:, :0, :, :0].detach().clone())
            calls.left_out.append(LeftOut(name, stack_of(name)[1] or 0, told, by_layer, *shapes))
        return True

    def cut_of(self, call: Call) -> Cut | None:
        """The heads that are kept of a call; None for all."""
        if self._keep.heads is None:
            return None
        shape = (call.query.shape[1], call.key.shape[1])
        if shape not in self._cuts:
            self._cuts[shape] = Cut.of(self._keep.heads, *shape)
        return self._cuts[shape]

    def forget(self) -> None:
        """A run begins or ends: no call of it continues one of another."""
        self._last = None


def check(model: str, names: Sequence[str], kinds: Sequence[str], left_out: Sequence[LeftOut]) -> None:
    """Raise `Unclear` unless the names of attentions that were left out said their layers.

    `names` and `kinds` are those of the attentions that were kept.
    """
    if not left_out:
        return
    groups = Counter(_group(name, kind) for name, kind in zip(names, kinds, strict=True))
    groups.update(_group(one.name, one.kind) for one in left_out)
    several: dict[tuple[str, bool], bool] = defaultdict(bool)
    for (stack, _, cross), count in groups.items():
        several[stack, cross] |= count > 1
    for one in left_out:
        stack, _, cross = _group(one.name, one.kind)
        if one.by_layer and several[stack, cross]:
            raise Unclear(say("errors.layers_unclear", model=model, site=one.name))


def _group(name: str, kind: str) -> tuple[str, int | None, bool]:
    return (*stack_of(name), kind == "cross")


def _certain(model: nn.Module) -> dict[str, int | None]:
    """By name, the modules that stand in one place only; with the layer, where the name is certain of it."""
    named = list(model.named_modules(remove_duplicate=False))
    places = Counter(id(module) for _, module in named)
    alike: Counter[tuple[object, ...]] = Counter()
    numbers: dict[tuple[object, ...], set[int | None]] = defaultdict(set)
    found = []
    for name, module in named:
        stack, number = stack_of(name)
        of = (stack, type(module), kind_of(module, name, causal=False))
        alike[(*of, number)] += 1
        numbers[of].add(number)
        if places[id(module)] == 1:
            found.append((name, of, number))
    return {
        name: number if alike[(*of, number)] == 1 and len(numbers[of]) > 1 else None
        for name, of, number in found
    }
