"""Many calls of a model that fill one cache, put together to one attention per site.

Generation does so, and prefill in chunks. A step sees `past` cached tokens and adds its own; of each
attention it leaves its queries and its *new* keys,

    Q = [Q_0; Q_1; …],   K = [K_0; K_1; …],   row i: position i, whatever its step,

so memory grows with the tokens and not with their square. That a step's old keys are those of the steps
before is checked against the keys it was given, at steps 1, 2, 4, 8 …, and at the last.

Caches hand over different stretches of keys: all of them, a buffer with empty slots behind, or the last of a
window. With beams, a row of the batch continues another one from step to step; their lineage is followed
back from the sequence that was returned. What a cache forgets again (`crop`, in speculative decoding) is
forgotten here.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.errors import UnfaithfulRecording
from regard.record.choosing import Calls
from regard.words import say

if TYPE_CHECKING:
    from jaxtyping import Int

    from regard.record.call import Call
    from regard.record.heard import Heard


@dataclass(frozen=True)
class Position:
    """Where the tensors of a call lie among all tokens."""

    query: int  # position of the first query
    key: int  # position of the first key that is kept
    origin: int  # position of the first key that the call was given, and so of the first column of its mask
    seen: int  # how many keys from there on are tokens, and no empty slots


@dataclass
class Step:
    """One call of the model: how many tokens the cache held, and what was heard."""

    past: int
    inputs: dict[str, Tensor]
    heard: list[Heard] = field(default_factory=list)
    calls: Calls = field(default_factory=Calls)
    order: Int[Tensor, " b"] | None = None  # the row that each row of the next step continues
    keep: int = 1 << 62  # tokens of this step that the cache did not forget later

    @property
    def count(self) -> int:
        """Tokens that this step added and that were kept."""
        return min(self.keep, self.calls.queries)

    @property
    def stop(self) -> int:
        """Tokens in the cache after this step."""
        return self.past + self.count


class Chain:
    """The steps that filled one cache."""

    def __init__(self, cache: object | None) -> None:
        self._cache = weakref.ref(cache) if cache is not None else None
        self.steps: list[Step] = []
        self.last_keys: dict[tuple[str, int], Tensor] = {}  # what each site was given in the last step
        self.given: dict[str, Tensor] = {}  # what `generate` was given, and ...
        self.returned: Tensor | None = None  # ... the sequences that it returned
        self.ends: tuple[int, ...] = ()  # tokens that end a sequence

    @property
    def cached(self) -> bool:
        """Whether there is a cache at all; without one, each step reads all tokens anew."""
        return self._cache is not None

    def holds(self, cache: object) -> bool:
        """Whether `cache` is the one that these steps filled."""
        return self._cache is not None and self._cache() is cache

    def adopt(self, inputs: dict[str, Tensor], heard: list[Heard], calls: Calls) -> None:
        """Take a call that made the cache itself as the first step."""
        at = [Position(0, 0, 0, h.key.shape[2]) for h in heard]
        self.steps = [
            Step(0, inputs, [replace(h, position=p) for h, p in zip(heard, at, strict=True)], calls)
        ]

    def begin(self, past: int, inputs: dict[str, Tensor]) -> Step:
        """A new step on `past` tokens; what lies beyond them in earlier steps is forgotten."""
        self.steps = [step for step in self.steps if step.past < past]
        for step in self.steps:
            step.keep = min(step.keep, past - step.past)
        self.steps.append(Step(past, inputs))
        return self.steps[-1]

    @property
    def checks(self) -> bool:
        """Whether the present step is one of those that are compared with what is known."""
        number = len(self.steps) - 1
        return number & (number - 1) == 0

    def reorder(self, order: Int[Tensor, " b"]) -> None:
        """Rows of the cache were exchanged after the present step."""
        if self.steps:
            before = self.steps[-1].order
            self.steps[-1].order = order if before is None else before[order]

    def fresh(self, call: Call, name: str, kind: str) -> tuple[Tensor, Position]:
        """The keys of a call that are not known from earlier steps, and where they lie."""
        step, (queries, given) = self.steps[-1], call.lengths
        site = (name, sum(h.name == name for h in step.heard))
        first = len(self.steps) == 1
        if kind == "cross":
            return (call.key if first else call.key[:, :, :0]), Position(step.past, 0, 0, given)
        stop = step.past + queries
        origin = max(0, stop - given)
        seen = min(given, stop)
        self.last_keys[site] = call.key.detach()
        if not first and self.checks:
            self._compare(site, call.key.detach(), origin, step.past)
        start = origin if first else step.past
        key = call.key[:, :, start - origin : stop - origin]
        if step.past or key.untyped_storage().nbytes() != key.numel() * key.element_size():
            key = key.detach().clone()  # a part of a buffer that will change
        return key, Position(step.past, start, origin, seen)

    def check_last(self) -> None:
        """Compare the keys of the last step, which hold those of all, with what was kept."""
        if len(self.steps) > 1:
            for site, key in self.last_keys.items():
                stop = self.steps[-1].past + self.steps[-1].calls.queries
                self._compare(site, key, max(0, stop - key.shape[2]), self.steps[-1].past)
        self.last_keys.clear()

    def lineage(self, rows: Int[Tensor, " r"], last: int) -> list[Int[Tensor, " r"]]:
        """For each step up to `last`, the rows that `rows` of that step continue."""
        found = [rows]
        for step in reversed(self.steps[:last]):
            found.append(found[-1] if step.order is None else step.order.to(rows.device)[found[-1]])
        return found[::-1]

    def heard_at(self, site: tuple[str, int], steps: Sequence[Step]) -> list[Heard]:
        """What was heard of a site, step by step."""
        found = []
        for step in steps:
            of_name = [h for h in step.heard if h.name == site[0]]
            found.append(of_name[site[1]])
        return found

    def _compare(self, site: tuple[str, int], key: Tensor, origin: int, past: int) -> None:
        """Raise unless `key`, which begins at `origin`, repeats the keys kept from there up to `past`."""
        steps = self.steps[:-1]
        rows = self.lineage(torch.arange(key.shape[0], device=key.device), len(steps))[:-1]
        for heard, step, row in zip(self.heard_at(site, steps), steps, rows, strict=True):
            at = heard.position.key if heard.position is not None else 0
            start, stop = max(at, origin), min(at + heard.key.shape[2], step.stop, past)
            if start >= stop:
                continue
            old, new = heard.key[:, :, start - at : stop - at], key[:, :, start - origin : stop - origin]
            new = new if heard.heads is None else heard.heads.keys(new)
            if any(s.order is not None for s in self.steps):
                old = old.index_select(0, row)
            if not torch.equal(old, new):
                raise UnfaithfulRecording(say("errors.cache_changed", site=site[0]))


def cache_in(named: Mapping[str, Any]) -> Any:
    """The cache among the arguments or results of a model, whose name for it changed once."""
    return next((c for name in ("cache", "past_key_values") if (c := named.get(name)) is not None), None)


def cached_tokens(cache: Any) -> int | None:
    """How many tokens a cache holds, or None when it does not say."""
    try:
        return int(cache.get_seq_length())
    except (AttributeError, TypeError, ValueError, IndexError, NotImplementedError):
        return None
