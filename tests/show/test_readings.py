"""Rows, columns, lines and cells of a long recording are the recording's own weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from by_hand import recording_of
from regard.errors import InvalidArgument, RecordingError
from regard.show import readings
from regard.show.payload import decode, payload
from regard.show.tiles import Tiles

COUNT = 40


@pytest.fixture
def tiles() -> Tiles:
    """Two layers of three heads; the second is causal."""
    return Tiles(recording_of([f"w{i}" for i in range(COUNT)], causal_from=1))


def with_sinks() -> Any:
    recording = recording_of(["a"] * 9, causal_from=1)
    for site in recording.sites:
        site.sinks = torch.tensor([0.0, 2.0, -1.0])
    return recording


@pytest.mark.parametrize("layer", [0, 1])
def test_a_row_holds_the_largest_weights_of_every_head_and_the_share_of_the_others(
    tiles: Tiles, layer: int
) -> None:
    answer = readings.row(tiles, layer, 17, k=3)
    exact = tiles.recording.weights(layer=layer, rows=17)
    for head in range(3):
        assert set(exact[head].topk(3).indices.tolist()) <= set(answer["keys"])
    shown = torch.tensor(answer["weights"])
    torch.testing.assert_close(shown, exact[:, answer["keys"]], atol=1e-6, rtol=0)
    torch.testing.assert_close(
        shown.sum(-1) + torch.tensor(answer["outside"]), torch.ones(3), atol=1e-5, rtol=0
    )
    assert "sinks" not in answer
    assert layer == 0 or max(answer["keys"]) <= 17


def test_a_column_holds_who_reads_a_key_most(tiles: Tiles) -> None:
    answer = readings.column(tiles, 1, 2, 5, k=4)
    exact = tiles.recording.weights(layer=1, head=2, cols=5)
    assert answer["queries"] == sorted(exact.topk(4).indices.tolist())
    torch.testing.assert_close(
        torch.tensor(answer["weights"][0]), exact[answer["queries"]], atol=1e-6, rtol=0
    )
    assert answer["total"] == pytest.approx(float(exact.sum()), abs=1e-5)


def test_the_lines_of_some_rows_are_the_largest_weights_of_each_head(tiles: Tiles) -> None:
    answer = readings.lines(tiles, 0, 30, count=32, k=2)
    assert set(answer["query"]) == set(range(30, COUNT))
    exact = tiles.recording.weights(layer=0)
    found = {
        (head, query, key): weight
        for head, query, key, weight in zip(
            answer["head"], answer["query"], answer["key"], answer["weight"], strict=True
        )
    }
    for head in range(3):
        for query in range(30, COUNT):
            best = exact[head, query].topk(2)
            for key, weight in zip(best.indices.tolist(), best.values.tolist(), strict=True):
                assert weight < 1e-3 or found[head, query, key] == pytest.approx(weight, abs=1e-6)
    assert len(found) == len(answer["head"]) <= 3 * 10 * 2


def test_cells_are_exact_and_forbidden_ones_are_minus_one(tiles: Tiles) -> None:
    shown = np.frombuffer(readings.cells(tiles, 1, 1, range(3, 9), range(5, 12)), "<f4").reshape(6, 7)
    exact = tiles.recording.weights(layer=1, head=1, rows=slice(3, 9), cols=slice(5, 12))
    forbidden = torch.arange(5, 12) > torch.arange(3, 9)[:, None]
    torch.testing.assert_close(torch.tensor(shown), exact.masked_fill(forbidden, -1.0), atol=1e-6, rtol=0)


def test_what_is_not_there_or_too_much_is_refused(tiles: Tiles, monkeypatch: pytest.MonkeyPatch) -> None:
    for refused in (
        lambda: readings.row(tiles, 0, COUNT),
        lambda: readings.row(tiles, 2, 0),
        lambda: readings.column(tiles, 0, 3, 0),
        lambda: readings.column(tiles, 0, 0, -1),
        lambda: readings.lines(tiles, 0, COUNT),
        lambda: readings.cells(tiles, 0, 0, range(39, 41), range(1)),
    ):
        with pytest.raises(InvalidArgument):
            refused()
    monkeypatch.setattr(readings, "MOST_CELLS", 3)
    with pytest.raises(InvalidArgument, match="At most 3 cells"):
        readings.cells(tiles, 0, 0, range(2), range(2))


def test_numbers_that_are_none_are_refused(tiles: Tiles) -> None:
    tiles.recording.sites[0].key[0, 0, 3] = float("nan")
    with pytest.raises(RecordingError, match="are not numbers"):
        readings.row(tiles, 0, 0)


def test_what_a_learned_sink_takes_is_a_column_of_its_own() -> None:
    recording = with_sinks()
    data = payload(recording)
    for site, chunk in zip(data.header["sites"], data.chunks, strict=True):
        assert site["sinks"] is True
        shown = decode(chunk, 3, 9, 10)
        torch.testing.assert_close(shown.sum(-1), torch.ones(3, 9), atol=0.02, rtol=0)
        exact = recording.weights(layer=site["layer"])
        assert float((shown[..., :9] - exact).abs().max()) <= 0.002
        assert float((shown[..., 9] - (1 - exact.sum(-1))).abs().max()) <= 0.002
    answer = readings.row(Tiles(recording), 0, 4)
    total = torch.tensor(answer["weights"]).sum(-1) + torch.tensor(answer["outside"])
    torch.testing.assert_close(total + torch.tensor(answer["sinks"]), torch.ones(3), atol=1e-5, rtol=0)


def test_a_weight_that_is_not_nought_is_never_told_as_such() -> None:
    recording = recording_of([f"w{i}" for i in range(COUNT)])
    site = recording.sites[0]
    site.query *= 40  # so that some weights are tiny
    answer = readings.row(Tiles(recording), 0, 17, k=COUNT)
    exact = recording.weights(layer=0, rows=17)[:, answer["keys"]]
    assert float(exact[exact > 0].min()) < 1e-8
    torch.testing.assert_close(torch.tensor(answer["weights"]), exact, atol=0, rtol=1e-5)
