"""Exact numbers out of a recording of any length: a row, a column, some cells, the strongest lines.

    row:     weights[h, i, :]   of all heads, the largest by position, with the share that the others have
    column:  weights[h, :, j]   of one head
    lines:   the k largest of each row, for drawing

A row costs heads × n products and holds as many numbers. A column needs the log-sum-exp of every row of its
head once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.attend.kept import LargestScores
from regard.attend.tiles import strips
from regard.errors import InvalidArgument, RecordingError
from regard.show.tiles import FORBIDDEN, GivenUp, Stop, Tiles, never
from regard.words import say

if TYPE_CHECKING:
    from jaxtyping import Float

    from regard.record.site import Site

MOST_CELLS = 1 << 16
NOT_KEPT = -2.0
_DIGITS = 7
_FAINTEST = 1e-3  # a line of less than this cannot be seen


def row(tiles: Tiles, site: int, position: int, k: int = 32, stop: Stop = never) -> dict[str, Any]:
    """What one query gives to the keys among the `k` largest of any head, and to all others together."""
    of = tiles.site(site)
    queries, keys = tiles.spans(of)
    _inside(of, position, len(queries))
    rows = slice(queries.start + position, queries.start + position + 1)
    with torch.no_grad():
        lse = tiles.lse(of, None, rows, stop)
        scores = of.scores(tiles.item)
        weights = scores.weights(rows, _all(keys), lse)[:, 0]  # (h, k)
        sink = scores.sink(lse, rows)[:, 0]
    best = _best(weights, k, of)
    whole = weights.sum(-1)
    if of.largest is not None:  # the weights that are not kept are of the others: a row sums to 1
        whole = (1 - sink).masked_fill(lse[:, 0] == -torch.inf, 0.0)
    answer = {
        "row": position,
        "heads": list(of.head_numbers),
        "keys": best.tolist(),
        "weights": _numbers(weights[:, best]),
        "outside": _numbers((whole - weights[:, best].sum(-1)).clamp(min=0).double().round(decimals=_DIGITS)),
    }
    return answer if of.sinks is None else {**answer, "sinks": _numbers(sink)}


def column(
    tiles: Tiles, site: int, head: int, position: int, k: int = 32, stop: Stop = never
) -> dict[str, Any]:
    """The `k` queries of one head that give most to one key, and what all queries give it together."""
    of = tiles.site(site)
    queries, keys = tiles.spans(of)
    _inside(of, position, len(keys))
    of.place_of(head)
    cols = slice(keys.start + position, keys.start + position + 1)
    scores = of.scores(tiles.item, head)
    parts = []
    with torch.no_grad():
        for strip in strips(_all(queries), len(keys)):
            if stop():
                raise GivenUp
            parts.append(scores.weights(strip, cols, tiles.lse(of, head, strip, stop))[0, :, 0])
    weights = torch.cat(parts)[None]  # (1, q)
    best = _best(weights, k, of)
    return {
        "column": position,
        "head": head,
        "queries": best.tolist(),
        "weights": _numbers(weights[:, best]),
        "total": None if of.largest is not None else round(float(weights.sum()), _DIGITS),
    }


def lines(
    tiles: Tiles, site: int, first: int, count: int = 32, k: int = 6, stop: Stop = never
) -> dict[str, Any]:
    """The `k` largest weights of every head of the queries `first` … `first + count − 1`, as four columns."""
    of = tiles.site(site)
    queries, keys = tiles.spans(of)
    _inside(of, first, len(queries))
    start = queries.start + first
    table: list[list[float]] = []
    with torch.no_grad():
        for strip in strips(slice(start, min(start + count, queries.stop)), len(keys), heads=of.heads):
            lse = tiles.lse(of, None, strip, stop)
            best = of.scores(tiles.item).weights(strip, _all(keys), lse).topk(min(k, len(keys)))
            for head, at, place in (best.values >= _FAINTEST).nonzero().tolist():
                weight = _rounded(float(best.values[head, at, place]))
                query, key = strip.start - queries.start + at, int(best.indices[head, at, place])
                table.append([of.head_numbers[head], query, key, weight])
    names = ("head", "query", "key", "weight")
    return {"first": first, "count": count} | {
        name: [line[i] for line in table] for i, name in enumerate(names)
    }


def cells(tiles: Tiles, site: int, head: int, rows: range, cols: range) -> bytes:
    """A small rectangle exactly: float32, little-endian, row by row; −1 where the mask forbids.

    −2 where the weight was not kept.
    """
    of = tiles.site(site)
    queries, keys = tiles.spans(of)
    of.place_of(head)
    for chosen, span in ((rows, queries), (cols, keys)):
        _inside(of, chosen.start, len(span))
        _inside(of, chosen.stop - 1, len(span))
    if len(rows) * len(cols) > MOST_CELLS:
        raise InvalidArgument(say("serve.too_many_cells", most=MOST_CELLS, got=len(rows) * len(cols)))
    at = slice(queries.start + rows.start, queries.start + rows.stop)
    across = slice(keys.start + cols.start, keys.start + cols.stop)
    scores = of.scores(tiles.item, head)
    with torch.no_grad():
        weights = scores.weights(at, across, tiles.lse(of, head, at, never))[0]
        allowed = scores.allowed(at, across)
    if isinstance(scores, LargestScores):
        weights = weights.masked_fill(scores.unknown(at, across)[0], NOT_KEPT)
    if allowed is not None:
        weights = weights.masked_fill(~allowed.expand(1, *weights.shape)[0], FORBIDDEN)
    return weights.cpu().numpy().astype("<f4").tobytes()


def _best(weights: Float[Tensor, "h n"], k: int, site: Site) -> Tensor:
    """The positions that are among the `k` largest of any head, ascending; those of weight 0 are left out."""
    if not bool(torch.isfinite(weights).all()):
        raise RecordingError(say("errors.not_a_number", site=site.name))
    best: Tensor = torch.unique(weights.topk(min(k, weights.shape[-1]), dim=-1).indices)
    return best[weights[:, best].amax(0) > 0]


def _inside(site: Site, position: int, count: int) -> None:
    if not 0 <= position < count:
        raise InvalidArgument(
            say("serve.no_such_position", site=site.name, position=position, most=count - 1)
        )


def _all(span: range) -> slice:
    return slice(span.start, span.stop)


def _numbers(values: Tensor) -> Any:
    """As lists, rounded to what float32 can tell: what is not 0 stays so."""
    listed = values.double().cpu()
    return [_rounded(x) for x in listed.tolist()] if listed.ndim == 1 else [_numbers(v) for v in listed]


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
