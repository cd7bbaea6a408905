"""Some heads of an attention instead of all, cut out of everything that is kept of a call.

    query heads  H = {h_1 < h_2 < …},   head h of the model reads key head h // group

Kept heads are counted anew in the tensors and keep the model's numbers beside them (`Site.head_numbers`).
Where the kept heads still share key heads evenly, each key head is kept once; else it is repeated as often
as the greatest common divisor of the counts asks (heads 0, 1 and 2 on key heads 0, 0, 1: twice, once).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from regard.attend.mask import of_heads
from regard.record.call import Call
from regard.record.site import Site

if TYPE_CHECKING:
    from jaxtyping import Float


@dataclass(frozen=True, eq=False)
class Cut:
    """Which query heads of an attention of `total` heads on `kv` key heads are kept."""

    numbers: tuple[int, ...]  # ascending; none where the attention has none of the wanted
    total: int
    kv: int
    _shared: WeakTensorKeyDictionary = field(default_factory=WeakTensorKeyDictionary, repr=False)

    @classmethod
    def of(cls, wanted: Collection[int], total: int, kv: int) -> Cut | None:
        """The cut that leaves the wanted heads; None where all of them are wanted."""
        numbers = tuple(head for head in range(total) if head in wanted)
        return None if len(numbers) == total else cls(numbers, total, kv)

    @property
    def key_numbers(self) -> tuple[int, ...]:
        """The key heads that are kept, repeated where the kept query heads would not share them evenly."""
        group = self.total // self.kv
        counts = Counter(number // group for number in self.numbers)
        each = math.gcd(*counts.values())
        return tuple(key for key, count in sorted(counts.items()) for _ in range(count // each))

    def queries(self, query: Float[Tensor, "b h q d"]) -> Float[Tensor, "b H q d"]:
        """The kept heads of the queries, in memory of their own."""
        return _taken(query, self.numbers)

    def keys(self, key: Float[Tensor, "b g k d"]) -> Float[Tensor, "b G k d"]:
        """The key heads that these read, in memory of their own."""
        return _taken(key, self.key_numbers)

    def call(self, call: Call) -> Call:
        """The call with these heads alone; without values, which nothing needs after the proof."""
        return replace(
            call,
            query=self.queries(call.query),
            key=self.keys(call.key),
            value=call.value[:, :0],
            mask=self._added(call.mask),
            bias=self._added(call.bias),
            sinks=self._sinks(call.sinks),
            rule=None if call.rule is None else call.rule.of_heads(self.numbers),
        )

    def site(self, site: Site) -> None:
        """Leave these heads alone in a site that has all."""
        site.query, site.key = self.queries(site.query), self.keys(site.key)
        site.mask = None if site.mask is None else site.mask.of_heads(self.numbers)
        site.bias = self._added(site.bias)
        site.sinks = self._sinks(site.sinks)
        site.cut = (self.numbers, self.total)
        site.forget_lse()

    def _sinks(self, sinks: Tensor | None) -> Tensor | None:
        if sinks is None:
            return None
        return sinks[list(self.numbers)] if sinks.ndim == 1 else sinks[:, list(self.numbers)]

    def _added(self, tensor: Tensor | None) -> Tensor | None:
        """What is added to the logits, or forbids them; layers that share one go on sharing it."""
        if tensor is None or tensor.ndim < 3 or tensor.shape[-3] == 1:
            return tensor
        if tensor not in self._shared:
            self._shared[tensor] = of_heads(tensor, self.numbers)
        cut: Tensor = self._shared[tensor]
        return cut


def _taken(tensor: Tensor, heads: tuple[int, ...]) -> Tensor:
    return tensor.detach().index_select(1, torch.tensor(heads, dtype=torch.long, device=tensor.device))
