"""What a page asks of a recording that is too long to be sent whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from starlette.testclient import TestClient

from by_hand import recording_of, small_recording
from regard.serve.session import KEPT_LONG, Session
from regard.show.tiles import decode

COUNT = 1200  # more than a page draws at once


@pytest.fixture(scope="module")
def long() -> Any:
    return recording_of([f"w{i}" for i in range(COUNT)], causal_from=1, heads=2, sharpness=1.0)


@pytest.fixture
def client(connect: Callable[..., TestClient], long: Any) -> TestClient:
    session = Session()
    session.show(long)
    return connect(session=session)


def test_the_header_of_a_long_recording_says_that_its_sites_are_tiled(client: TestClient) -> None:
    header = client.get("/api/recording").json()
    assert [site["tiled"] for site in header["sites"]] == [True, True]
    assert [site["bytes"] for site in header["sites"]] == [0, 0]
    assert len(header["sequences"]["text"]["tokens"]) == COUNT
    assert client.get("/api/chunks/0").content == b""


def test_a_tile_is_the_pooled_matrix(client: TestClient, long: Any) -> None:
    for reduce in ("max", "mean"):
        response = client.get(f"/api/tiles/1/0/3/0/0?reduce={reduce}")
        assert response.headers["content-type"] == "application/octet-stream"
        blocks = long.weights(layer=1, head=0).reshape(150, 8, 150, 8)
        expected = blocks.amax((1, 3)) if reduce == "max" else blocks.mean((1, 3))
        shown = decode(response.content, 150, 150)
        assert torch.equal(shown == -1, torch.ones(150, 150, dtype=torch.bool).triu(1))
        assert float((shown.clamp(min=0) - expected).abs().max()) <= float(expected.max()) / 131_068 + 1e-6


def test_rows_columns_lines_and_cells_are_the_recordings_weights(client: TestClient, long: Any) -> None:
    row = client.get("/api/rows/1/700?k=5").json()
    exact = long.weights(layer=1, rows=700)
    torch.testing.assert_close(torch.tensor(row["weights"]), exact[:, row["keys"]], atol=1e-6, rtol=0)
    column = client.get("/api/columns/1/1/700?k=5").json()
    exact = long.weights(layer=1, head=1, cols=700)
    torch.testing.assert_close(
        torch.tensor(column["weights"][0]), exact[column["queries"]], atol=1e-6, rtol=0
    )
    lines = client.get("/api/lines/0/96?count=4&k=1").json()
    assert set(lines["query"]) == {96, 97, 98, 99}
    cells = np.frombuffer(client.get("/api/cells/0/1/10/20?rows=2&columns=3").content, "<f4").reshape(2, 3)
    exact = long.weights(layer=0, head=1, rows=slice(10, 12), cols=slice(20, 23))
    torch.testing.assert_close(torch.tensor(cells), exact, atol=1e-7, rtol=0)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("tiles/2/0/0/0/0", 404),
        ("tiles/0/2/0/0/0", 404),
        ("tiles/0/0/4/0/0", 404),
        ("tiles/0/0/0/5/0", 404),
        ("tiles/0/0/0/0/0?reduce=median", 422),
        ("tiles/0/0/0/0/x", 422),
        ("rows/0/1200", 404),
        ("rows/0/0?k=0", 422),
        ("columns/0/5/0", 404),
        ("cells/0/0/1199/0?rows=2", 404),
        ("rows/0/0?recording=gone", 404),
    ],
)
def test_what_is_not_there_is_one_sentence(client: TestClient, path: str, status: int) -> None:
    response = client.get(f"/api/{path}")
    assert response.status_code == status
    assert response.json()["error"].endswith(".")


def test_a_short_recording_has_no_tiles(connect: Callable[..., TestClient]) -> None:
    session = Session()
    session.show(small_recording())
    assert connect(session=session).get("/api/rows/0/0").status_code == 404


def test_only_the_newest_long_recordings_are_kept_each_under_its_own_name(
    connect: Callable[..., TestClient], long: Any
) -> None:
    session = Session()
    names = [session.show(long).header["id"] for _ in range(KEPT_LONG + 1)]
    client = connect(session=session)
    statuses = [client.get(f"/api/rows/0/0?recording={name}").status_code for name in names]
    assert statuses == [404] + [200] * KEPT_LONG


def test_the_export_of_a_long_recording_is_refused_with_what_to_do(client: TestClient) -> None:
    response = client.get("/api/export")
    assert response.status_code == 413
    assert "“regard record … -o long.regard”" in response.json()["error"]
