"""The map of a head: every pixel is the largest or mean weight of its block, within what a tile promises."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from by_hand import recording_of
from regard.attend import tiles as arithmetic
from regard.errors import InvalidArgument, RecordingError
from regard.show import tiles as module
from regard.show.tiles import FORBIDDEN, GivenUp, Place, Tiles, decode, encode, top_level


def by_definition(weights: torch.Tensor, allowed: torch.Tensor, block: int, reduce: str) -> torch.Tensor:
    """Each block of a whole matrix on its own."""
    rows, columns = weights.shape
    picture = torch.empty(-(-rows // block), -(-columns // block))
    for r in range(picture.shape[0]):
        for c in range(picture.shape[1]):
            at = slice(r * block, (r + 1) * block), slice(c * block, (c + 1) * block)
            value = weights[at].max() if reduce == "max" else weights[at].mean()
            picture[r, c] = value if bool(allowed[at].any()) else FORBIDDEN
    return picture


def whole(tiles: Tiles, site: int, head: int, level: int, reduce: str, count: int) -> torch.Tensor:
    """All tiles of one level, put together."""
    pixels = -(-count // (1 << level))
    across = -(-pixels // module.SIDE)
    strips = []
    for row in range(across):
        high = min(module.SIDE, pixels - row * module.SIDE)
        strips.append(
            torch.cat(
                [
                    decode(
                        tiles.tile(site, head, Place(level, row, column), reduce),  # type: ignore[arg-type]
                        high,
                        min(module.SIDE, pixels - column * module.SIDE),
                    )
                    for column in range(across)
                ],
                dim=1,
            )
        )
    return torch.cat(strips)


@given(
    count=st.integers(1, 70),
    level=st.integers(0, 4),
    reduce=st.sampled_from(["max", "mean"]),
    site=st.integers(0, 1),
    strip=st.sampled_from([50, 1 << 22]),
    direct=st.sampled_from([0, 1, 4]),
)
@settings(max_examples=40, deadline=None)
def test_the_tiles_of_a_level_are_the_pooled_matrix(
    count: int, level: int, reduce: str, site: int, strip: int, direct: int
) -> None:
    recording = recording_of(["x"] * count, causal_from=1, sharpness=1.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SIDE", 8)
        patch.setattr(arithmetic, "_STRIP", strip)
        patch.setattr(arithmetic, "_TILE_ROWS", 16)
        patch.setattr(module, "_DIRECT", direct)
        level = min(level, top_level(count, count))
        shown = whole(Tiles(recording), site, 2, level, reduce, count)
    allowed = torch.ones(count, count, dtype=torch.bool)
    expected = by_definition(
        recording.weights(layer=site, head=2), allowed.tril() if site else allowed, 1 << level, reduce
    )
    assert torch.equal(shown == FORBIDDEN, expected == FORBIDDEN)
    assert float((shown - expected).abs().max()) <= max(0.0, float(expected.max())) / 131_068 + 1e-6


@given(sharpness=st.sampled_from([0.0, 1.0, 30.0]), rows=st.integers(1, 9), columns=st.integers(1, 9))
@settings(max_examples=30, deadline=None)
def test_a_tile_is_within_its_largest_pixel_by_131068(sharpness: float, rows: int, columns: int) -> None:
    generator = torch.Generator().manual_seed(rows * 10 + columns)
    pixels = torch.softmax(sharpness * torch.randn(rows, columns, generator=generator), dim=-1)
    pixels[0, 0] = FORBIDDEN
    shown = decode(encode(pixels), rows, columns)
    assert float((shown - pixels).abs().max()) <= max(0.0, float(pixels.max())) / 131_068 + 1e-7
    assert shown[0, 0] == FORBIDDEN
    assert rows * columns == 1 or bool((shown.flatten()[1:] >= 0).all())


def test_the_quarters_of_a_large_tile_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SIDE", 8)
    monkeypatch.setattr(module, "_DIRECT", 1)
    tiles = Tiles(recording_of(["x"] * 64))
    tiles.tile(0, 1, Place(3, 0, 0))
    monkeypatch.setattr(Tiles, "_pooled", lambda *_: pytest.fail("computed again"))
    tiles.tile(0, 1, Place(2, 1, 1))
    tiles.tile(0, 1, Place(1, 3, 3))
    with pytest.raises(pytest.fail.Exception):
        tiles.tile(0, 1, Place(0, 7, 7))


def test_a_tile_that_was_given_up_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SIDE", 8)
    monkeypatch.setattr(module, "_DIRECT", 1)
    tiles = Tiles(recording_of(["x"] * 64))
    with pytest.raises(GivenUp):
        tiles.tile(0, 0, Place(3, 0, 0), "max", lambda: len(tiles._kept) >= 5)
    assert len(tiles._kept) == 5  # four small ones, and the quarter that they make
    place = Place(3, 0, 0)
    assert tiles.tile(0, 0, place) == Tiles(tiles.recording).tile(0, 0, place)


def test_tiles_take_no_more_memory_than_allowed_and_the_oldest_go_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "SIDE", 8)
    tiles = Tiles(recording_of(["x"] * 64), budget=5 * 256)
    for column in range(8):
        tiles.tile(0, 0, Place(0, 0, column))
    assert tiles._size == sum(pixels.nbytes for pixels in tiles._kept.values()) <= 5 * 256
    assert [name[3].column for name in tiles._kept] == [3, 4, 5, 6, 7]  # type: ignore[attr-defined]


def test_work_that_nobody_waits_for_is_given_up_between_two_strips(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arithmetic, "_STRIP", 1)
    monkeypatch.setattr(arithmetic, "_TILE_ROWS", 16)
    tiles = Tiles(recording_of(["x"] * 64))
    looks: list[int] = []

    def stop() -> bool:
        looks.append(1)
        return len(looks) > 5

    with pytest.raises(GivenUp):
        tiles.tile(0, 0, Place(0, 0, 0), "max", stop)
    assert not tiles._kept
    assert not tiles._work.locked()
    assert len(tiles.tile(0, 0, Place(0, 0, 0))) == 4 + 2 * 64 * 64


def test_who_waits_for_its_turn_can_leave() -> None:
    tiles = Tiles(recording_of(["x"] * 9))
    left = threading.Event()
    left.set()
    with tiles._work, pytest.raises(GivenUp):
        tiles.tile(0, 0, Place(0, 0, 0), "max", left.is_set)


@pytest.mark.parametrize(
    ("site", "head", "place"),
    [
        (2, 0, (0, 0, 0)),
        (-1, 0, (0, 0, 0)),
        (0, 3, (0, 0, 0)),
        (0, 0, (1, 0, 0)),
        (0, 0, (-1, 0, 0)),
        (0, 0, (0, 1, 0)),
        (0, 0, (0, 0, -1)),
    ],
)
def test_what_is_not_there_is_refused(site: int, head: int, place: tuple[int, int, int]) -> None:
    tiles = Tiles(recording_of(["x"] * 9))
    with pytest.raises(InvalidArgument):
        tiles.tile(site, head, Place(*place))


def test_weights_that_are_not_numbers_are_refused_with_the_site() -> None:
    recording = recording_of(["x"] * 9)
    recording.sites[0].query[0, 1, 4, 0] = float("nan")
    tiles = Tiles(recording)
    assert tiles.tile(0, 0, Place(0, 0, 0))
    with pytest.raises(RecordingError, match=r"encoder\.layer\.0\.attention are not numbers"):
        tiles.tile(0, 1, Place(0, 0, 0))


def test_the_top_level_shows_everything_in_one_tile() -> None:
    assert [top_level(n, 1) for n in (1, 256, 257, 512, 513, 16_384, 100_000)] == [0, 0, 1, 1, 2, 6, 9]


def test_nothing_n_by_n_is_ever_held(monkeypatch: pytest.MonkeyPatch, largest: Callable[..., int]) -> None:
    recording = recording_of(["x"] * 3000, layers=1, heads=2)
    tiles = Tiles(recording)
    work: Any = lambda: tiles.tile(0, 1, Place(top_level(3000, 3000), 0, 0))  # noqa: E731
    assert largest(work) <= arithmetic._STRIP < 3000 * 3000
