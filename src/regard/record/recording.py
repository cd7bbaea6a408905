"""A Recording: all sites of one run, from which any rectangle of weights is recomputed when it is looked at.

    weights[i, j] = exp(scale · q_i·k_j + bias_ij − lse_i)   where the mask allows, else 0

Positions are those of an item's own tokens: padding is not there, whatever the batch was padded to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch
from torch import Tensor

from regard.attend import tiles
from regard.attend.top import largest
from regard.errors import InvalidArgument, TooLong
from regard.record.memory import is_lack_of_memory
from regard.record.progress import Progress, telling
from regard.record.selection import Index, pick
from regard.record.site import Proof, Site
from regard.record.tokens import Tokens
from regard.words import say

if TYPE_CHECKING:
    from jaxtyping import Float, Int

Side = Literal["query", "key"]


@dataclass(frozen=True)
class Provenance:
    """Where a recording comes from: enough to tell two of them apart, and to make it again."""

    model: str
    model_class: str
    source: str = ""
    licence: str | None = None
    texts: tuple[tuple[str, ...], ...] = ()  # of each item: its text, or its text and pair
    dtype: str = ""
    device: str = ""
    kernels: tuple[str, ...] = ()
    doors: tuple[str, ...] = ()
    created: str = ""  # ISO 8601, UTC
    versions: dict[str, str] = field(default_factory=dict)
    truncated: bool = False
    notes: tuple[str, ...] = ()

    @property
    def text(self) -> tuple[str, ...]:
        """The text, or text and pair, of the first item; empty when only tensors were given."""
        return self.texts[0] if self.texts else ()


@dataclass(frozen=True)
class Axis:
    """The tokens along one axis of the sites, item by item, and where in the padded tensors they stand."""

    tokens: Sequence[Tokens]
    spans: tuple[range, ...]
    written: tuple[int | None, ...] = ()  # of each item the first token that the model wrote itself

    def generated_from(self, item: int) -> int | None:
        """The first of the item's tokens that the model wrote itself; None where it wrote none."""
        return self.written[item] if self.written else None

    def written_from(self, position: int) -> Axis:
        """The same tokens, of which the model wrote those from `position` in the padded tensors on."""
        firsts = (max(0, position - span.start) for span in self.spans)
        written = (
            first if first < len(span) else None for first, span in zip(firsts, self.spans, strict=True)
        )
        return replace(self, written=tuple(written))


class TopK(NamedTuple):
    """The keys that a query looks at most, and with which weight; the largest first."""

    positions: Int[Tensor, "*h k"]
    weights: Float[Tensor, "*h k"]


@dataclass(frozen=True, eq=False)
class Recording:
    """All sites of one run of a model."""

    sites: tuple[Site, ...]
    sequences: dict[str, Axis]
    provenance: Provenance

    @property
    def items(self) -> int:
        """Number of items in the batch."""
        return self.sites[0].query.shape[0]

    @property
    def layers(self) -> tuple[int, ...]:
        """Numbers of the layers, ascending."""
        return tuple(sorted({site.layer for site in self.sites}))

    def first_layer(self, kind: str | None = None) -> int:
        """The lowest number of a layer, of a kind where one is given; 0 where there is none of it."""
        return min((site.layer for site in self.sites if kind in (None, site.kind)), default=0)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of attention, in the order in which they ran."""
        return tuple(dict.fromkeys(site.kind for site in self.sites))

    @property
    def proof(self) -> Proof:
        """What was checked in all sites together."""
        checked = [site.proof for site in self.sites if site.proof.rows]
        notes = " ".join(dict.fromkeys(site.proof.note for site in self.sites if site.proof.note))
        error = max((proof.max_error for proof in checked), default=float("nan"))
        return Proof(sum(proof.rows for proof in checked), error, notes)

    def site(self, layer: int | None = None, kind: str | None = None, name: str | None = None) -> Site:
        """The site of a layer; where a layer has several (a decoder's self and cross attention), of a kind.

        Or the site of a name, where two share layer and kind (the two towers of CLIP); a module that ran
        several times gave several sites of its name, which `layer` tells apart.
        """
        if name is not None:
            return self._named(name, layer, kind)
        if layer is None:
            raise InvalidArgument(
                "say which attention: layer= (a number) or site= (a name, as in recording.sites)."
            )
        found = [s for s in self.sites if s.layer == layer and (kind is None or s.kind == kind)]
        if len(found) == 1:
            return found[0]
        if kind is not None and kind not in self.kinds:
            raise InvalidArgument(say("errors.no_kind", known=", ".join(self.kinds), got=repr(kind)))
        if not found:
            layers = sorted({s.layer for s in self.sites if kind is None or s.kind == kind})
            raise InvalidArgument(say("errors.no_layer", known=listed(layers), got=repr(layer)))
        kinds = list(dict.fromkeys(s.kind for s in found))
        if kind is None and len(kinds) == len(found):
            choices = ", ".join(map(repr, kinds))
            raise InvalidArgument(
                f"layer {layer} has several attentions; say which with kind= one of {choices}."
            )
        names = ", ".join(repr(s.name) for s in found)
        raise InvalidArgument(f"layer {layer} has several attentions; say which with site= one of {names}.")

    def _named(self, name: str, layer: int | None, kind: str | None) -> Site:
        of_name = [s for s in self.sites if s.name == name]
        if not of_name:
            ends = ", ".join(repr(s.name) for s in (self.sites[0], self.sites[-1]))
            raise InvalidArgument(
                f"site must be one of the names in recording.sites, such as {ends}; got {name!r}."
            )
        found = [s for s in of_name if layer in (None, s.layer) and kind in (None, s.kind)]
        if len(found) == 1:
            return found[0]
        layers = listed([s.layer for s in of_name])
        raise InvalidArgument(f"site {name!r} ran as layer {layers}; say which with layer=; got {layer!r}.")

    def tokens(self, item: int = 0, side: Side = "query", site: Site | None = None) -> Tokens:
        """The tokens of an item along the query or the key axis of a site (by default of the first)."""
        if side not in ("query", "key"):
            raise InvalidArgument(f"side must be 'query' or 'key'; got {side!r}.")
        chosen = site or self.sites[0]
        axis = self.sequences[chosen.queries if side == "query" else chosen.keys]
        return axis.tokens[self._item(item, chosen)]

    def shape(
        self, layer: int | None = None, kind: str | None = None, item: int = 0, site: str | None = None
    ) -> tuple[int, int, int]:
        """(heads, queries, keys) of a site, for an item without its padding."""
        of, rows, cols = self._axes(layer, kind, item, site)
        return of.heads, len(rows), len(cols)

    def weights(
        self,
        *,
        layer: int | None = None,
        head: int | None = None,
        rows: Index = None,
        cols: Index = None,
        kind: str | None = None,
        item: int = 0,
        site: str | None = None,
    ) -> Float[Tensor, "*h r c"]:
        """Weights of any rectangle, recomputed exactly: (h, q, k), or (q, k) for one head.

        Args:
            layer: number of the layer, as the model's own modules count.
            head: one head, by the model's number, or all that are kept.
            rows: queries, as a slice, a sequence of positions, or one position (whose axis is then dropped).
            cols: keys, likewise.
            kind: "self", "causal" or "cross", where a layer has several attentions.
            item: which text of a batch.
            site: name of the attention, instead of `layer`; needed where two share layer and kind.

        Of a recording with keep="top_k", weights that were not kept read as 0; its provenance says how much
        of a row that is at most.

        Memory: the rectangle, and its rows over all keys once if their log-sum-exp is not known yet.

        >>> recording.weights(layer=2, head=5, rows=slice(3, 9)).shape  # doctest: +SKIP
        torch.Size([6, 12])
        """
        of, queries, keys = self._axes(layer, kind, item, site)
        _check_head(of, head)
        chosen_rows, chosen_cols = pick("rows", rows, queries), pick("cols", cols, keys)
        count = (of.heads if head is None else 1) * chosen_rows.count * chosen_cols.count
        with torch.no_grad(), _fitting(count):
            lse = of.lse_of(item, chosen_rows.hull, head)
            weights = of.scores(item, head).weights(chosen_rows.hull, chosen_cols.hull, lse)
            weights = chosen_cols.take(chosen_rows.take(weights, 1), -1)
        return weights if head is None else weights[0]

    def sink(
        self,
        *,
        layer: int | None = None,
        head: int | None = None,
        rows: Index = None,
        kind: str | None = None,
        item: int = 0,
        site: str | None = None,
    ) -> Float[Tensor, "*h r"]:
        """What each query gives to the learned sink of its head: exp(sink − lse), 0 in a model without sinks.

        Weights and sink of a row sum to 1.
        """
        of, queries, _ = self._axes(layer, kind, item, site)
        _check_head(of, head)
        chosen = pick("rows", rows, queries)
        with torch.no_grad():
            lse = of.lse_of(item, chosen.hull, head)
            given = of.scores(item, head).sink(lse, chosen.hull)
            given = chosen.take(given, 1)
        return given if head is None else given[0]

    def rows(
        self,
        *,
        layer: int | None = None,
        row: int | Sequence[int] | slice,
        head: int | None = None,
        kind: str | None = None,
        item: int = 0,
        site: str | None = None,
    ) -> Float[Tensor, "*h k"]:
        """What one query (or several) gives to every key: `weights` with `rows=row`."""
        return self.weights(layer=layer, head=head, rows=row, kind=kind, item=item, site=site)

    def top_k(
        self,
        *,
        layer: int | None = None,
        row: Index = None,
        k: int = 10,
        head: int | None = None,
        kind: str | None = None,
        item: int = 0,
        site: str | None = None,
        progress: Progress | None = None,
    ) -> TopK:
        """The k keys that each query looks at most (fewer, when there are fewer keys): (h, r, k).

        Computed tile by tile: never holds rows × keys numbers. `row` is one query, whose axis is then
        dropped, a slice, a sequence of positions, or None for all. `progress` is called with ("top_k", rows
        done, rows in all).
        """
        if k < 1:
            raise InvalidArgument(f"k must be at least 1; got {k}.")
        of, queries, keys = self._axes(layer, kind, item, site)
        _check_head(of, head)
        if of.largest is not None and of.largest.count < min(k, len(keys)):
            raise InvalidArgument(say("errors.beyond_top_k", kept=of.largest.count, got=k))
        cols = slice(keys.start, keys.stop)
        chosen = pick("row", row, queries)
        scores = of.scores(item, head)
        tell, done, total = telling(progress), 0, chosen.count
        positions, weights = [], []
        for piece in chosen.in_pieces(tiles.tile_rows(len(keys), scores.heads)):
            tell("top_k", done, total)
            with torch.no_grad():
                lse = of.lse_of(item, piece.hull, head)
                found = largest(scores, piece.hull, cols, lse, k)
            positions.append(piece.take(found[0], 1))
            weights.append(piece.take(found[1], 1))
            done += piece.count
        tell("top_k", total, total)
        best = TopK(*(_joined(parts) for parts in (positions, weights)))
        return best if head is None else TopK(best.positions[0], best.weights[0])

    def overview(
        self,
        *,
        layer: int | None = None,
        head: int | None = None,
        size: int = 256,
        reduce: Literal["max", "mean"] = "max",
        kind: str | None = None,
        item: int = 0,
        site: str | None = None,
        progress: Progress | None = None,
    ) -> Float[Tensor, "*h R C"]:
        """All weights of a head in at most size × size cells, each the largest or mean weight of its block.

        Computed tile by tile: never holds queries × keys numbers. A block spans ceil(queries / size) queries
        and ceil(keys / size) keys. `progress` is called with ("overview", rows done, rows in all); what
        has become known of the recording when that raises, or Ctrl-C does, stays known.
        """
        if size < 1:
            raise InvalidArgument(f"size must be at least 1; got {size}.")
        if reduce not in ("max", "mean"):
            raise InvalidArgument(f"reduce must be 'max' or 'mean'; got {reduce!r}.")
        of, queries, keys = self._axes(layer, kind, item, site)
        _check_head(of, head)
        rows, cols = slice(queries.start, queries.stop), slice(keys.start, keys.stop)
        block = tiles.block_of(rows, cols, size)
        scores = of.scores(item, head)
        tell, parts = telling(progress), []
        for strip in tiles.strips(rows, len(keys), block[0], scores.heads):
            tell("overview", strip.start - rows.start, len(queries))
            with torch.no_grad():
                lse = of.lse_of(item, strip, head)
                parts.append(tiles.in_blocks(scores, strip, cols, lse, block, reduce))
        tell("overview", len(queries), len(queries))
        picture = _joined(parts)
        return picture if head is None else picture[0]

    def save(self, path: str | PathLike[str]) -> None:
        """Write one file, whole or not at all; `regard.open` reads it."""
        from regard.record.store import save

        save(self, path)

    def _axes(
        self, layer: int | None, kind: str | None, item: int, name: str | None
    ) -> tuple[Site, range, range]:
        of = self.site(layer, kind, name)
        item = self._item(item, of)
        return of, self.sequences[of.queries].spans[item], self.sequences[of.keys].spans[item]

    def _item(self, item: int, site: Site) -> int:
        items = site.query.shape[0]  # windows of an image count as items, and differ from stage to stage
        if not 0 <= item < items:
            raise InvalidArgument(f"item must lie in [0, {items}); got {item}.")
        return item

    def __repr__(self) -> str:
        heads = sorted({site.heads for site in self.sites})
        return (
            f"Recording({self.provenance.model!r}, {len(self.sites)} sites, heads {listed(heads)}, "
            f"items {self.items}, max_error {self.proof.max_error:.1e})"
        )


def _joined(strips: list[Tensor]) -> Tensor:
    """Strips of rows as one tensor; of one row that was taken out, that row."""
    return torch.cat(strips, 1) if len(strips) != 1 else strips[0]


@contextmanager
def _fitting(weights: int) -> Iterator[None]:
    """Raise `TooLong` where so many weights are more than there is memory for."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_lack_of_memory(error):
            raise
        raise TooLong(say("errors.too_many_to_see", weights=-(-weights // 10**6))) from error


def _check_head(site: Site, head: int | None) -> None:
    if head is not None:
        site.place_of(head)


def listed(numbers: Sequence[int]) -> str:
    """Numbers for a message: a range as its ends."""
    if len(numbers) > 2 and list(numbers) == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]} … {numbers[-1]}"
    return ", ".join(map(str, numbers))
