"""A site: one attention of a model, as the queries, keys and mask rule that it ran with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.attend.kept import Largest, LargestScores
from regard.attend.tiles import Scores, strips
from regard.errors import InvalidArgument
from regard.record.progress import Progress, telling
from regard.words import say

if TYPE_CHECKING:
    from jaxtyping import Float

    from regard.attend.mask import Mask

NAN = float("nan")


@dataclass(frozen=True)
class Proof:
    """What comparing recomputed with real attention output gave.

    `max_error` is the largest difference found, as a share of the largest value that the output mixes.
    `rows` counts the query positions compared (in every item, all heads). Without rows `note` says why
    nothing was compared.
    """

    rows: int
    max_error: float
    note: str = ""


@dataclass(eq=False, repr=False)
class Site:
    """One attention of a model: where and what it is, and the tensors that it ran with, padding included.

    Heads are asked for by the model's own numbers, also where only some are kept.
    """

    name: str
    layer: int
    kind: str  # "self", "causal" or "cross"
    query: Float[Tensor, "b h q d"]
    key: Float[Tensor, "b g k d"]
    scale: float
    mask: Mask | None = None
    bias: Tensor | None = None  # added to the logits; broadcasts to (b, h, q, k)
    softcap: float | None = None
    sinks: Tensor | None = None  # logits of a learned sink, (h,), or one for each query, (b, h, q)
    kernel: str = ""
    door: str = "interface"
    queries: str = "text"  # which sequence of the recording the queries are of, ...
    keys: str = "text"  # ... and the keys
    proof: Proof = Proof(0, NAN)
    cut: tuple[tuple[int, ...], int] | None = None  # which of the model's heads these are, of how many
    largest: Largest | None = None  # where only these are kept, in place of queries and keys
    _lse: Tensor | None = None
    _lse_known: Tensor | None = None

    @property
    def heads(self) -> int:
        """Number of query heads that are kept."""
        return self.query.shape[1]

    @property
    def head_numbers(self) -> tuple[int, ...]:
        """The model's numbers of these heads, ascending."""
        return tuple(range(self.heads)) if self.cut is None else self.cut[0]

    @property
    def all_heads(self) -> int:
        """Number of query heads that the model has here."""
        return self.heads if self.cut is None else self.cut[1]

    @property
    def kv_heads(self) -> int:
        """Number of key heads here; the query head at place p reads key head p // (heads / kv_heads)."""
        return self.key.shape[1]

    @property
    def max_error(self) -> float:
        """`proof.max_error`."""
        return self.proof.max_error

    @property
    def lse(self) -> Float[Tensor, "b h q"]:
        """Log-sum-exp of every row of logits, computed when first needed; −inf where no key is allowed."""
        for item in range(self.query.shape[0]):
            self.lse_of(item, slice(0, self.query.shape[2]))
        return self._buffers()[0]

    @property
    def lse_if_known(self) -> Float[Tensor, "b h q"] | None:
        """`lse` if all of it has been computed already."""
        return self._lse if self._lse_known is not None and bool(self._lse_known.all()) else None

    def know_lse(self, lse: Float[Tensor, "b h q"]) -> None:
        """Take over a log-sum-exp that was computed elsewhere."""
        self._lse = lse
        self._lse_known = torch.ones(lse.shape, dtype=torch.bool)

    def forget_lse(self) -> None:
        """The tensors are others now: what was computed from them is not true any more."""
        self._lse = self._lse_known = None

    def place_of(self, head: int) -> int:
        """Where head number `head` of the model lies in the tensors; raises InvalidArgument if nowhere."""
        if isinstance(head, int) and not isinstance(head, bool):
            if self.cut is None and 0 <= head < self.heads:
                return head
            if head in self.head_numbers:
                return self.head_numbers.index(head)
            if 0 <= head < self.all_heads:
                kept = ", ".join(map(str, self.head_numbers))
                raise InvalidArgument(say("errors.head_not_kept", kept=kept, got=head))
        raise InvalidArgument(say("errors.no_head", heads=self.all_heads, got=repr(head)))

    def scores(self, item: int, head: int | None = None) -> Scores:
        """The logits of one item, of one head or of all."""
        place = 0 if head is None else self.place_of(head)
        heads = slice(0, self.heads) if head is None else slice(place, place + 1)
        shared = place // (self.heads // self.kv_heads)
        keys = slice(0, self.kv_heads) if head is None else slice(shared, shared + 1)
        query, key = self.query[item, heads], self.key[item, keys]
        sinks = self.sinks if self.sinks is None or self.sinks.ndim == 1 else self.sinks[item]
        sinks = None if sinks is None else sinks[heads]
        where: dict[str, Any] = {"mask": self.mask, "sinks": sinks, "item": item, "head": place}
        if self.largest is not None:
            positions, kept = self.largest.positions[item, heads], self.largest.weights[item, heads]
            lse = self._buffers()[0][item, heads]
            return LargestScores(query, key, 1.0, positions=positions, kept=kept, lse=lse, **where)
        return Scores(query, key, self.scale, bias=self.bias, softcap=self.softcap, **where)

    def lse_of(
        self, item: int, rows: slice, head: int | None = None, progress: Progress | None = None
    ) -> Float[Tensor, "h r"]:
        """Log-sum-exp of some rows of an item, of one head or all; only what is not yet known is computed.

        What was computed when it is interrupted is known from then on.
        """
        lse, known = self._buffers()
        place = 0 if head is None else self.place_of(head)
        heads = slice(0, self.heads) if head is None else slice(place, place + 1)
        gaps = _gaps(known[item, heads, rows].all(0).tolist(), rows.start)
        tell, done, total = telling(progress), 0, sum(stop - start for start, stop in gaps)
        for start, stop in gaps:
            scores = self.scores(item, head)
            for strip in strips(slice(start, stop), self.key.shape[2], heads=scores.heads):
                tell("lse", done, total)
                lse[item, heads, strip] = scores.log_sum_exp(strip)
                known[item, heads, strip] = True
                done += strip.stop - strip.start
        if total:
            tell("lse", total, total)
        return lse[item, heads, rows]

    def __repr__(self) -> str:
        heads = f"{self.heads}" if self.heads == self.kv_heads else f"{self.heads} on {self.kv_heads}"
        if self.heads != self.all_heads:
            heads = f"{', '.join(map(str, self.head_numbers))} of {self.all_heads}"
        size = f"{self.query.shape[2]} × {self.key.shape[2]}"
        return (
            f"Site({self.name!r}, layer {self.layer}, {self.kind}, heads {heads}, "
            f"items {self.query.shape[0]}, {size}, {self.kernel or self.door}, "
            f"max_error {self.proof.max_error:.1e})"
        )

    def _buffers(self) -> tuple[Tensor, Tensor]:
        if self._lse is None or self._lse_known is None:
            shape = self.query.shape[:3]
            wide = torch.float64 if self.query.dtype == torch.float64 else torch.float32
            self._lse = self.query.new_zeros(shape, dtype=wide)
            self._lse_known = torch.zeros(shape, dtype=torch.bool)
        return self._lse, self._lse_known


def _gaps(known: Sequence[bool], start: int) -> list[tuple[int, int]]:
    """The runs of False, as (start, stop)."""
    gaps: list[tuple[int, int]] = []
    for position, seen in enumerate(known, start):
        if seen:
            continue
        if gaps and gaps[-1][1] == position:
            gaps[-1] = (gaps[-1][0], position + 1)
        else:
            gaps.append((position, position + 1))
    return gaps
