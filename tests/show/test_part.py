"""What shows a recording names heads as the model does, and shows no weight that was not kept."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from typing import Any

import pytest
import torch

import regard
from by_hand import recording_of
from regard.errors import InvalidArgument
from regard.record.keeping import Keep
from regard.show import readings
from regard.show.heatmap import heatmap
from regard.show.payload import decode, payload
from regard.show.tiles import Place, Tiles
from regard.show.tiles import decode as decode_tile

WORDS = [f"w{i}" for i in range(20)]


def whole() -> regard.Recording:
    return recording_of(WORDS, heads=4, causal_from=1)


def with_heads(*heads: int, **choice: Any) -> regard.Recording:
    return Keep(heads=heads, **choice).of(whole())


def test_the_payload_says_which_heads_these_are() -> None:
    full, part = payload(whole()), payload(with_heads(1, 3))
    assert "head_numbers" not in full.header["sites"][0]
    for i, site in enumerate(part.header["sites"]):
        assert (site["heads"], site["head_numbers"], site["all_heads"]) == (2, [1, 3], 4)
        weights = decode(part.chunks[i], 2, 20, 20)
        torch.testing.assert_close(weights, decode(full.chunks[i], 4, 20, 20)[[1, 3]], rtol=0, atol=1e-3)


def test_tiles_rows_lines_columns_and_cells_go_by_the_number_of_the_model() -> None:
    full, part = Tiles(whole()), Tiles(with_heads(1, 3))
    there = Place(0, 0, 0)
    assert part.tile(0, 3, there) == full.tile(0, 3, there)
    with pytest.raises(InvalidArgument):
        part.tile(0, 0, there)
    row = readings.row(part, 0, 7)
    assert row["heads"] == [1, 3]
    everything = readings.row(full, 0, 7)
    for head, weights in zip(row["heads"], row["weights"], strict=True):
        known = dict(zip(everything["keys"], everything["weights"][head], strict=True))
        assert all(
            known[key] == pytest.approx(w, abs=1e-6) for key, w in zip(row["keys"], weights, strict=True)
        )
    assert set(readings.lines(part, 0, 0)["head"]) == {1, 3}
    assert readings.column(part, 0, 3, 5) == readings.column(full, 0, 3, 5)
    assert readings.cells(part, 0, 3, range(2), range(2)) == readings.cells(full, 0, 3, range(2), range(2))
    for ask in (readings.column, lambda *a: readings.cells(*a[:3], range(1), range(1))):
        with pytest.raises(InvalidArgument, match="kept, 1, 3; got 0"):
            ask(part, 0, 0, 5)


def test_a_figure_titles_its_panels_with_the_numbers_of_the_model() -> None:
    figure = heatmap(with_heads(1, 3))
    assert [axis.get_title() for axis in figure.axes[:2]] == ["head 1", "head 3"]
    alone = heatmap(with_heads(2, layers=[1]))
    assert alone.get_suptitle() == "by hand · layer 1 · head 2"  # also the first layer that there is
    with pytest.raises(InvalidArgument, match="kept, 1, 3; got 0"):
        heatmap(with_heads(1, 3), head=0)


def test_a_weight_that_was_not_kept_is_never_a_number() -> None:
    full, part = whole(), Keep("top_k", k=5).of(whole())
    shown = payload(part)
    assert [site["kept"] for site in shown.header["sites"]] == [5, 5]
    exact, read = full.weights(layer=0), decode(shown.chunks[0], 4, 20, 20)
    best = exact.topk(5).indices
    kept = torch.zeros_like(exact, dtype=torch.bool).scatter_(-1, best, True)
    assert torch.equal(read > 0, kept)  # a kept weight never looks like one that was not
    precision = shown.header["sites"][0]["precision"]
    assert ((read - exact)[kept].abs() <= precision * 1.001).all()

    tiles = Tiles(part)
    cells = torch.tensor(struct.unpack("<400f", readings.cells(tiles, 1, 2, range(20), range(20)))).view(
        20, 20
    )
    causal = full.weights(layer=1, head=2)
    forbidden = torch.ones(20, 20).triu(1).bool()
    assert (cells[forbidden] == -1).all()
    for row in range(20):
        order = causal[row, : row + 1].argsort(descending=True)
        torch.testing.assert_close(cells[row, order[:5]], causal[row, order[:5]], rtol=0, atol=1e-6)
        assert (cells[row, order[5:]] == readings.NOT_KEPT).all()

    pixels = decode_tile(tiles.tile(1, 2, Place(0, 0, 0)), 20, 20)
    assert torch.equal(pixels < 0, forbidden)  # what was not kept is not what the mask forbids
    row = readings.row(tiles, 0, 7)
    best_weights = full.weights(layer=0, rows=7)[:, row["keys"]]
    for head, (outside, weights) in enumerate(zip(row["outside"], row["weights"], strict=True)):
        assert outside == pytest.approx(1 - sum(weights), abs=1e-5)
        assert sum(weights) <= float(best_weights[head].sum()) + 1e-5
    assert readings.column(tiles, 0, 3, 5)["total"] is None
    assert "only the 5 largest weights were kept" in heatmap(part, head=0).get_supxlabel()
    json.dumps(shown.header)


def test_nothing_is_unknown_where_rows_are_short() -> None:
    part = Keep("top_k", k=64).of(whole())
    assert "kept" not in payload(part).header["sites"][0]
    cells = struct.unpack("<400f", readings.cells(Tiles(part), 0, 0, range(20), range(20)))
    assert readings.NOT_KEPT not in cells
    torch.testing.assert_close(part.weights(layer=1), whole().weights(layer=1), rtol=0, atol=1e-6)


def test_sinks_stay_beside_the_largest_weights() -> None:
    recording = whole()
    for site in recording.sites:
        site.sinks = torch.tensor([0.5, 0.0, 1.0, -1.0])
    sinks = recording.sink(layer=0)
    last = decode(payload(recording).chunks[0], 4, 20, 21)[..., -1]
    part = Keep("top_k", k=5).of(copied(recording))
    assert torch.allclose(part.sink(layer=0), sinks, atol=1e-6)
    read = decode(payload(part).chunks[0], 4, 20, 21)
    torch.testing.assert_close(read[..., -1], last, rtol=0, atol=4e-3)
    row = readings.row(Tiles(part), 0, 3)
    for outside, weights, sink in zip(row["outside"], row["weights"], row["sinks"], strict=True):
        assert outside + sum(weights) + sink == pytest.approx(1, abs=1e-5)


def copied(recording: regard.Recording) -> regard.Recording:
    """A copy, whose sites may be changed."""
    return replace(recording, sites=tuple(map(replace, recording.sites)))
