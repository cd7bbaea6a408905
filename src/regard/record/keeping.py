"""What is kept of a recording: which sites, whether queries and keys or weights, and in how many bits.

    keep="qk":       2 · n · d numbers a head, from which every weight follows
    keep="weights":  n · n numbers a head, as logits log w: for short texts, or where queries must not leave

Fewer bits cost exactness. The largest difference that they make to a weight is measured on rows spread over
each site, and said in the provenance: what a reader sees is never less exact than it says.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from regard.errors import InvalidArgument, TooLong
from regard.record.recording import Recording
from regard.record.site import Site
from regard.words import say

KINDS = ("self", "causal", "cross")
MOST_WEIGHTS = 1 << 28
_ROWS = 8  # of each site, on which the error of fewer bits is measured
_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Keep:
    """What is kept: `None` is everything, in the number type that ran."""

    what: Literal["qk", "weights"] = "qk"
    layers: Collection[int] | None = None
    kinds: Collection[str] | None = None
    dtype: torch.dtype | None = None

    def __post_init__(self) -> None:
        if self.what not in ("qk", "weights"):
            raise InvalidArgument(f"keep must be 'qk' or 'weights'; got {self.what!r}.")
        if self.dtype is not None and self.dtype not in _DTYPES:
            names = ", ".join(map(str, _DTYPES))
            raise InvalidArgument(f"dtype must be one of {names}; got {self.dtype}.")
        for kind in self.kinds or ():
            if kind not in KINDS:
                raise InvalidArgument(f"kinds must be of {', '.join(KINDS)}; got {kind!r}.")

    def of(self, recording: Recording) -> Recording:
        """The part of `recording` that is kept.

        Raises InvalidArgument when a layer or kind is asked for that there is not, or weights of a site with
        sinks.
        """
        sites = self._chosen(recording)
        if self.what == "weights":
            sites = [_as_weights(site) for site in sites]
        notes: tuple[str, ...] = ()
        if self.dtype is not None:
            smaller = [_in_bits(site, self.dtype) for site in sites]
            error = max(_difference(a, b) for a, b in zip(sites, smaller, strict=True))
            bits = str(self.dtype).removeprefix("torch.")
            notes, sites = (say("notes.fewer_bits", bits=bits, error=f"{error:.1g}"),), smaller
        if not notes and len(sites) == len(recording.sites) and self.what == "qk":
            return recording
        used = {name for site in sites for name in (site.queries, site.keys)}
        return Recording(
            tuple(sites),
            {name: axis for name, axis in recording.sequences.items() if name in used},
            replace(recording.provenance, notes=(*recording.provenance.notes, *notes)),
        )

    def _chosen(self, recording: Recording) -> list[Site]:
        for layer in self.layers or ():
            if layer not in recording.layers:
                raise InvalidArgument(
                    f"layers must be of {recording.layers[0]} … {recording.layers[-1]}; got {layer!r}."
                )
        for kind in self.kinds or ():
            if kind not in recording.kinds:
                raise InvalidArgument(f"kinds must be of {', '.join(recording.kinds)}; got {kind!r}.")
        found = [
            site
            for site in recording.sites
            if (self.layers is None or site.layer in self.layers)
            and (self.kinds is None or site.kind in self.kinds)
        ]
        if not found:
            raise InvalidArgument("no attention is of both the layers and the kinds that are to be kept.")
        return found


def _as_weights(site: Site) -> Site:
    """The same site as logits log w, with queries and keys that have no channels."""
    if site.sinks is not None:
        raise InvalidArgument(f"keep='weights' cannot hold the learned sinks of {site.name}; use keep='qk'.")
    items, heads, queries, _ = site.query.shape
    keys = site.key.shape[2]
    cells = items * heads * queries * keys
    if cells > MOST_WEIGHTS:
        raise TooLong(say("errors.too_many_weights", weights=cells // 10**6, most=MOST_WEIGHTS // 10**6))
    with torch.no_grad():
        logits = torch.stack([_weights(site, item, slice(0, queries)) for item in range(items)]).log_()
    return replace(
        site,
        query=logits.new_empty(items, heads, queries, 0),
        key=logits.new_empty(items, heads, keys, 0),
        bias=logits,
        softcap=None,
        scale=1.0,
        _lse=None,
        _lse_known=None,
    )


def _in_bits(site: Site, dtype: torch.dtype) -> Site:
    """The same site with its numbers in `dtype`."""
    if site.query.shape[-1]:
        return replace(site, query=site.query.to(dtype), key=site.key.to(dtype), _lse=None, _lse_known=None)
    bias = None if site.bias is None else site.bias.to(dtype)
    return replace(site, bias=bias, _lse=None, _lse_known=None)


def _difference(one: Site, other: Site) -> float:
    """The largest difference of weights on rows spread over all items and heads."""
    queries = one.query.shape[2]
    rows = sorted({round(i * (queries - 1) / (_ROWS - 1)) for i in range(_ROWS)}) if queries else []
    worst = 0.0
    with torch.no_grad():
        for item in range(one.query.shape[0]):
            for row in rows:
                a, b = (_weights(site, item, slice(row, row + 1)) for site in (one, other))
                worst = max(worst, float((a - b).abs().max()))
    return worst


def _weights(site: Site, item: int, rows: slice) -> Tensor:
    """All weights of some rows, without remembering their log-sum-exp."""
    scores = site.scores(item)
    return scores.weights(rows, slice(0, site.key.shape[2]), scores.log_sum_exp(rows))
