"""The k largest weights of each row, against sorting all of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from regard.attend import masks, tiles, top
from regard.attend.tiles import Scores
from regard.attend.top import largest

MASKS = {
    "none": lambda: None,
    "causal": masks.causal,
    "window": lambda: masks.window(3, 1),
    "padding": lambda: masks.padding([140]),
}


def scores_of(mask: str, queries: int = 150, keys: int = 150) -> Scores:
    generator = torch.Generator().manual_seed(1)
    query, key = (torch.randn(n, m, 8, generator=generator) for n, m in ((4, queries), (2, keys)))
    return Scores(query * 3, key, 0.35, mask=MASKS[mask]())


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("k", [1, 3, 7, 150, 400])
@pytest.mark.parametrize("tile", [1 << 12, 1 << 19])
def test_they_are_those_of_all_weights_sorted(mask: str, k: int, tile: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(top, "TILE", tile)
    monkeypatch.setattr(top, "_GROUP", 4)
    scores = scores_of(mask)
    rows, cols = slice(20, 90), slice(5, 150)
    lse = scores.log_sum_exp(rows)
    whole = scores.weights(rows, cols, lse)
    places, weights = largest(scores, rows, cols, lse, k)
    count = min(k, 145)
    assert places.shape == weights.shape == (4, 70, count)
    # The same products, in tiles of another shape: they round differently.
    torch.testing.assert_close(weights, whole.topk(count).values, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(whole.gather(-1, places), weights, atol=1e-6, rtol=1e-5)
    in_order = places.sort(-1).values
    assert bool((in_order[..., 1:] > in_order[..., :-1]).all()), "a key is named twice"


def test_a_row_that_sees_nothing_gives_weights_of_zero() -> None:
    scores = Scores(torch.ones(1, 3, 2), torch.ones(1, 5, 2), 1.0, mask=masks.padding([0]))
    places, weights = largest(scores, slice(0, 3), slice(0, 5), scores.log_sum_exp(slice(0, 3)), 2)
    assert weights.tolist() == [[[0.0, 0.0]] * 3]
    assert bool((places[..., 0] != places[..., 1]).all())


@pytest.mark.parametrize(("queries", "keys"), [(0, 5), (3, 0), (0, 0)])
def test_no_positions_give_an_empty_answer(queries: int, keys: int) -> None:
    scores = scores_of("none", queries, keys)
    lse = scores.log_sum_exp(slice(0, queries))
    places, weights = largest(scores, slice(0, queries), slice(0, keys), lse, 2)
    assert places.shape == weights.shape == (4, queries, min(2, keys))


def test_never_more_than_a_tile_is_held_and_none_beyond_the_diagonal(monkeypatch: Any) -> None:
    sizes: list[int] = []
    real = Scores._products

    def measured(self: Scores, rows: slice, cols: slice) -> torch.Tensor:
        product = real(self, rows, cols)
        sizes.append(product.numel())
        return product

    monkeypatch.setattr(Scores, "_products", measured)
    scores = Scores(torch.zeros(1, 9000, 4), torch.zeros(1, 9000, 4), 1.0, mask=masks.causal())
    largest(scores, slice(0, 256), slice(0, 9000), torch.zeros(1, 256), 5)
    assert max(sizes) <= tiles.TILE
    assert sum(sizes) < 256 * 9000
