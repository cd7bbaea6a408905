"""What is kept of a recording: which attentions and heads, in what form, and in how many bits.

    keep="qk":       2 · n · d numbers a head, from which every weight follows
    keep="weights":  n · n numbers a head, as logits log w: for short texts, or where queries must not leave
    keep="top_k":    2 · n · k numbers a head: the k largest weights of each row, exactly; the rest is unknown

What is not wanted is left out while the model runs where that is certain (choosing.py), else here, after it.
Sites are changed in place, one after another, so that the queries and keys of one are free before the next.

Fewer bits and fewer weights cost exactness. What they cost is measured, and said in the provenance: what a
reader sees is never less exact than it says.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, TypeVar

import torch
from torch import Tensor

from regard.attend.kept import Largest, largest_of
from regard.attend.tiles import Scores
from regard.errors import InvalidArgument, TooLong
from regard.record.heads import Cut
from regard.record.recording import Recording, listed
from regard.record.site import Site
from regard.words import decimal, say

T = TypeVar("T")
Form: TypeAlias = Literal["qk", "weights", "top_k"]

KINDS = ("self", "causal", "cross")
FORMS: tuple[Form, ...] = ("qk", "weights", "top_k")
MOST_WEIGHTS = 1 << 28
LARGEST = 32  # weights of a row that keep="top_k" keeps
_ROWS = 8  # of each site, on which the error of fewer bits is measured
_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Keep:
    """What is kept: `None` is everything, in the number type that ran."""

    what: Form = "qk"
    layers: Collection[int] | None = None
    heads: Collection[int] | None = None
    kinds: Collection[str] | None = None
    k: int | None = None
    dtype: torch.dtype | None = None

    def __post_init__(self) -> None:
        if self.what not in FORMS:
            raise InvalidArgument(f"keep must be 'qk', 'weights' or 'top_k'; got {self.what!r}.")
        if self.dtype is not None and self.dtype not in _DTYPES:
            names = ", ".join(map(str, _DTYPES))
            raise InvalidArgument(f"dtype must be one of {names}; got {self.dtype}.")
        for name in ("layers", "heads"):
            numbers = getattr(self, name)
            if numbers is not None and not _are_numbers(numbers):
                raise InvalidArgument(f"{name} must be numbers, such as {name}=[0, 3]; got {numbers!r}.")
        if isinstance(self.kinds, str):
            raise InvalidArgument(f"kinds must be several, such as kinds=[{self.kinds!r}]; got a string.")
        for kind in self.kinds or ():
            if kind not in KINDS:
                raise InvalidArgument(_not_there("kinds", ", ".join(KINDS), kind))
        if self.k is not None and self.what != "top_k":
            raise InvalidArgument(f"k goes with keep='top_k'; got k={self.k!r} with keep={self.what!r}.")
        if self.k is not None and (not isinstance(self.k, int) or isinstance(self.k, bool) or self.k < 1):
            raise InvalidArgument(f"k must be a number of weights, at least 1; got {self.k!r}.")

    def choice(self) -> dict[str, list[Any] | None]:
        """Which layers, heads and kinds are kept, as JSON."""
        chosen = {"layers": self.layers, "heads": self.heads, "kinds": self.kinds}
        return {name: None if of is None else sorted(of) for name, of in chosen.items()}

    def within(self, recording: Recording) -> Keep:
        """The same choice, of what a recording has."""
        heads = range(max(site.all_heads for site in recording.sites))
        return replace(
            self,
            layers=_both(self.layers, recording.layers),
            heads=_both(self.heads, heads),
            kinds=_both(self.kinds, recording.kinds),
        )

    def wants(self, layer: int, kind: str) -> bool:
        """Whether an attention is of the layers and kinds that are kept."""
        return (self.layers is None or layer in self.layers) and (self.kinds is None or kind in self.kinds)

    def check(self, layers: Iterable[int], kinds: Iterable[str], heads: int) -> None:
        """Raise InvalidArgument for a layer or kind that the model lacks, or a head beyond `heads`."""
        there, of = sorted(set(layers)), tuple(dict.fromkeys(kinds))
        for layer in self.layers or ():
            if layer not in there:
                raise InvalidArgument(_not_there("layers", listed(there), layer))
        for kind in self.kinds or ():
            if kind not in of:
                raise InvalidArgument(_not_there("kinds", ", ".join(of), kind))
        for head in self.heads or ():
            if heads and not head < heads:
                raise InvalidArgument(_not_there("heads", listed(range(heads)), head))

    def of(self, recording: Recording, left_out: Sequence[tuple[int, str]] = ()) -> Recording:
        """The part of `recording` that is kept. Its sites are taken over: they are changed in place.

        `left_out` are attentions, each its layer and kind, of which nothing was recorded because it is not
        wanted.

        Raises InvalidArgument when a layer, head or kind is asked for that there is not.
        """
        if self == Keep() and not left_out:
            return recording
        sites = self._chosen(recording, left_out)
        if self.heads is not None:
            for site in sites:
                cut = Cut.of(self.heads, site.heads, site.kv_heads)
                if site.cut is None and cut is not None:
                    cut.site(site)
            sites = [site for site in sites if site.heads]
        notes = self._convert(recording, sites)
        if not notes and not left_out and len(sites) == len(recording.sites):
            return recording
        used = {name for site in sites for name in (site.queries, site.keys)}
        return Recording(
            tuple(sites),
            {name: axis for name, axis in recording.sequences.items() if name in used},
            replace(recording.provenance, notes=(*recording.provenance.notes, *notes)),
        )

    def refuse(self, left_out: Sequence[tuple[int, str]]) -> None:
        """Raise InvalidArgument: attentions ran, and none of them is wanted."""
        self.check((layer for layer, _ in left_out), (kind for _, kind in left_out), 0)
        raise InvalidArgument("no attention is of both the layers and the kinds that are to be kept.")

    def _chosen(self, recording: Recording, left_out: Sequence[tuple[int, str]]) -> list[Site]:
        self.check(
            (*recording.layers, *(layer for layer, _ in left_out)),
            (*recording.kinds, *(kind for _, kind in left_out)),
            max(site.all_heads for site in recording.sites),
        )
        found = [
            site
            for site in recording.sites
            if self.wants(site.layer, site.kind)
            and (self.heads is None or any(head < site.all_heads for head in self.heads))
        ]
        if not found:
            raise InvalidArgument("no attention is of both the layers and the kinds that are to be kept.")
        return found

    def _convert(self, recording: Recording, sites: list[Site]) -> tuple[str, ...]:
        """Bring the sites into the form that is kept; what that costs, as sentences."""
        if self.what == "weights":
            for site in sites:
                _check_size(site)
        worst, left = 0.0, 0.0
        for site in sites:
            if self.what == "top_k":
                error = _into_largest(site, self.k or LARGEST, self.dtype, recording)
                left = max(left, site.largest.left_out if site.largest is not None else 0.0)
            else:
                before = _sample(site) if self.dtype is not None else None
                if self.what == "weights":
                    _into_weights(site)
                error = 0.0 if self.dtype is None else _into_bits(site, self.dtype, before)
            worst = max(worst, error)
        notes = []
        if self.what == "top_k":
            notes.append(say("notes.top_k", k=self.k or LARGEST, share=decimal(f"{left:.2g}")))
        if self.dtype is not None:
            bits = str(self.dtype).removeprefix("torch.")
            notes.append(say("notes.fewer_bits", bits=bits, error=decimal(f"{worst:.1g}")))
        return tuple(notes)


def _not_there(name: str, known: str, got: object) -> str:
    """The sentence for a layer, head or kind that a model does not have."""
    return say("errors.not_among", name=name, known=known, got=repr(got))


def _both(wanted: Collection[T] | None, there: Collection[T]) -> list[T] | None:
    """What of the wanted there is; None where all is wanted."""
    return None if wanted is None else [one for one in wanted if one in there]


def _are_numbers(values: object) -> bool:
    if isinstance(values, str) or not isinstance(values, Collection):
        return False
    return all(isinstance(v, int) and not isinstance(v, bool) and v >= 0 for v in values)


def _check_size(site: Site) -> None:
    """Refuse a site whose weights are too many to be kept as such."""
    cells = site.query.shape[:3].numel() * site.key.shape[2]
    if cells > MOST_WEIGHTS:
        raise TooLong(say("errors.too_many_weights", weights=cells // 10**6, most=MOST_WEIGHTS // 10**6))


def _into_weights(site: Site) -> None:
    """Logits log w, with queries and keys that have no channels.

    Beside a learned sink they are counted from it, as logits s − sink beside a sink of 0: so the row keeps
    what the sink takes.
    """
    everything = slice(0, site.query.shape[2]), slice(0, site.key.shape[2])
    found = []
    with torch.no_grad():
        for item in range(site.query.shape[0]):
            scores = site.scores(item)
            lse = scores.log_sum_exp(everything[0])
            if site.sinks is None:
                logits = scores.weights(*everything, lse).log_()
            else:
                logits = scores.tile(*everything).sub_(scores.sink_logits(everything[0])[..., None].to(lse))
            found.append((logits, _counted(lse, scores)))
    site.bias, lse = (torch.stack(parts) for parts in zip(*found, strict=True))
    _without_channels(site)
    site.know_lse(lse)


def _into_largest(site: Site, count: int, dtype: torch.dtype | None, recording: Recording) -> float:
    """The `count` largest weights of each row, in `dtype`; returns what that type costs, over all of them."""
    found, left_out = [], 0.0
    with torch.no_grad():
        for item in range(site.query.shape[0]):
            scores = site.scores(item)
            positions, weights, left, lse = largest_of(scores, count)
            own = recording.sequences[site.queries].spans[item]
            some = left[:, own.start : own.stop]
            left_out = max(left_out, float(some.max()) if some.numel() else 0.0)
            found.append((positions, weights, _counted(lse, scores)))
    positions, weights, lse = (torch.stack(parts) for parts in zip(*found, strict=True))
    narrow = weights if dtype is None else weights.to(dtype)
    error = float((narrow.to(weights.dtype) - weights).abs().max()) if weights.numel() else 0.0
    site.bias = None
    _without_channels(site)
    site.largest = Largest(positions, narrow, left_out)
    site.know_lse(lse)
    return error


def _counted(lse: Tensor, scores: Scores) -> Tensor:
    """The log-sum-exp of rows whose logits are log w, or are counted from the sink."""
    if scores.sinks is None:
        return lse.masked_fill(lse > -torch.inf, 0.0)
    return lse - scores.sink_logits(slice(0, lse.shape[1])).to(lse)


def _without_channels(site: Site) -> None:
    """Queries and keys that give no logits, where what is kept has all of them."""
    wide = torch.float64 if site.query.dtype == torch.float64 else torch.float32
    site.query, site.key = (t.new_empty(*t.shape[:3], 0, dtype=wide) for t in (site.query, site.key))
    site.softcap, site.scale = None, 1.0
    site.sinks = None if site.sinks is None else torch.zeros_like(site.sinks)
    site.forget_lse()


def _into_bits(site: Site, dtype: torch.dtype, before: Tensor | None) -> float:
    """The site's numbers in `dtype`; returns how far that brought weights from `before`."""
    if site.query.shape[-1]:
        site.query, site.key = site.query.to(dtype), site.key.to(dtype)
    elif site.bias is not None:
        site.bias = site.bias.to(dtype)
    site.forget_lse()
    return 0.0 if before is None or not before.numel() else float((_sample(site) - before).abs().max())


def _sample(site: Site) -> Tensor:
    """All weights of rows spread over a site, in every item, without remembering their log-sum-exp."""
    queries, keys = site.query.shape[2], site.key.shape[2]
    rows = sorted({round(i * (queries - 1) / (_ROWS - 1)) for i in range(_ROWS)}) if queries else []
    found = []
    with torch.no_grad():
        for item in range(site.query.shape[0]):
            scores = site.scores(item)
            for at in (slice(row, row + 1) for row in rows):
                found.append(scores.weights(at, slice(0, keys), scores.log_sum_exp(at)))
    return torch.stack(found) if found else torch.empty(0)
