"""Tiles against the formula written out in float64: rectangles, log-sum-exp and pooled pictures."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from regard.attend import masks, tiles
from regard.attend.tiles import Scores, pooled

MASKS = {
    "none": lambda: None,
    "causal": masks.causal,
    "window": lambda: masks.window(3, 1),
    "padding": lambda: masks.padding([37, 20, 11]),
    "causal and left padding": lambda: masks.causal() & masks.padding([37, 20, 11], side="left"),
    "one per head": lambda: masks.dense(random(3, 4, 31, 37) > 0),
}


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def scores_of(mask: Any, *, item: int = 1, dtype: torch.dtype = torch.float32, **more: Any) -> Scores:
    """Four query heads on two key heads, 31 queries on 37 keys."""
    query, key = random(4, 31, 8, seed=1, dtype=dtype), random(2, 37, 8, seed=2, dtype=dtype)
    return Scores(query * 2, key * 2, 0.35, mask=MASKS[mask](), item=item, **more)


def oracle(scores: Scores) -> tuple[Tensor, Tensor]:
    """(weights, lse) by the formula, in float64."""
    group = scores.query.shape[0] // scores.key.shape[0]
    key = scores.key.double().repeat_interleave(group, 0)
    logits = scores.query.double() @ key.transpose(1, 2) * scores.scale
    if scores.softcap is not None:
        logits = scores.softcap * torch.tanh(logits / scores.softcap)
    if scores.bias is not None:
        logits = logits + scores.bias.double()[min(scores.item, scores.bias.shape[0] - 1)]
    if scores.mask is not None:
        full = scores.mask.full(scores.lengths)
        full = full.reshape((1,) * (4 - full.ndim) + tuple(full.shape))
        logits = logits.masked_fill(~full[min(scores.item, full.shape[0] - 1)], -torch.inf)
    if scores.sinks is not None:
        logits = torch.cat([logits, scores.sinks.double()[:, None, None].expand(-1, logits.shape[1], 1)], -1)
    lse = torch.logsumexp(logits, -1)
    weights = torch.exp(logits - lse[..., None]).nan_to_num(0.0)
    return weights[..., : scores.key.shape[1]], lse


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"softcap": 2.0},
        {"bias": random(1, 4, 31, 37, seed=5)},
        {"bias": random(3, 1, 1, 37, seed=6)},
        {"sinks": random(4, seed=7)},
    ],
    ids=["plain", "softcap", "bias per head", "bias per key", "sinks"],
)
def test_weights_and_lse_equal_the_formula(mask: str, more: dict[str, Any]) -> None:
    scores = scores_of(mask, **more)
    weights, lse = oracle(scores)
    ours = scores.log_sum_exp(slice(0, 31))
    torch.testing.assert_close(ours.double(), lse, atol=1e-5, rtol=1e-6)
    for rows, cols in (
        (slice(0, 31), slice(0, 37)),
        (slice(4, 9), slice(30, 37)),
        (slice(3, 3), slice(0, 5)),
    ):
        tile = scores.weights(rows, cols, ours[:, rows])
        torch.testing.assert_close(tile.double(), weights[:, rows, cols], atol=1e-5, rtol=0)


def test_float64_queries_are_computed_in_float64() -> None:
    scores = scores_of("causal", dtype=torch.float64)
    weights, lse = oracle(scores)
    ours = scores.log_sum_exp(slice(0, 31))
    torch.testing.assert_close(ours, lse, atol=1e-12, rtol=0)
    torch.testing.assert_close(scores.weights(slice(0, 31), slice(0, 37), ours), weights, atol=1e-12, rtol=0)


def test_half_precision_does_not_overflow() -> None:
    query = torch.full((1, 2, 4), 130.0, dtype=torch.float16)
    scores = Scores(query, query, 1.0)  # products of 67,600, beyond float16
    lse = scores.log_sum_exp(slice(0, 2))
    assert lse.dtype == torch.float32
    weights = scores.weights(slice(0, 2), slice(0, 2), lse)
    # Logits of this size have steps of 1/128 in float32, and exp turns a step into a share of the weight.
    torch.testing.assert_close(weights, torch.full((1, 2, 2), 0.5), atol=0.5 / 128, rtol=0)


def test_a_row_that_sees_nothing_has_weights_of_zero_and_minus_infinity_as_lse() -> None:
    seen = torch.ones(31, 37, dtype=torch.bool)
    seen[7] = False
    scores = Scores(random(1, 31, 8), random(1, 37, 8), 1.0, mask=masks.dense(seen))
    lse = scores.log_sum_exp(slice(0, 31))
    assert lse[0, 7] == -torch.inf
    weights = scores.weights(slice(0, 31), slice(0, 37), lse)
    assert weights[0, 7].count_nonzero() == 0
    assert weights.isfinite().all()
    for reduce in ("max", "mean"):
        assert pooled(scores, slice(0, 31), slice(0, 37), lse, 8, reduce).isfinite().all()


def test_not_a_number_behind_the_mask_stays_there_and_before_it_does_not() -> None:
    key = random(1, 37, 8)
    key[0, 20:] = float("nan")
    hidden = Scores(random(1, 31, 8), key, 1.0, mask=masks.padding([20]))
    lse = hidden.log_sum_exp(slice(0, 31))
    assert hidden.weights(slice(0, 31), slice(0, 37), lse).isfinite().all()
    visible = Scores(random(1, 31, 8), key, 1.0)
    assert visible.log_sum_exp(slice(0, 31)).isnan().all()


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("size", [1, 2, 5, 31, 200])
def test_pooled_is_the_largest_or_mean_of_each_block(mask: str, size: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(tiles, "TILE", 64)  # many tiles
    monkeypatch.setattr(tiles, "_TILE_ROWS", 4)
    scores = scores_of(mask)
    weights, lse = oracle(scores)
    rows, cols = slice(2, 29), slice(1, 37)  # a rectangle inside, as an item without its padding is
    inside = weights[:, rows, cols]
    high, wide = -(-27 // size), -(-36 // size)
    for reduce in ("max", "mean"):
        picture = pooled(scores, rows, cols, lse[:, rows].float(), size, reduce)
        assert max(picture.shape[1:]) <= size
        for r in range(picture.shape[1]):
            for c in range(picture.shape[2]):
                block = inside[:, r * high : (r + 1) * high, c * wide : (c + 1) * wide].flatten(1)
                expected = block.amax(1) if reduce == "max" else block.mean(1)
                torch.testing.assert_close(picture[:, r, c].double(), expected, atol=1e-5, rtol=0)


def test_mean_picture_keeps_the_sum_of_the_weights() -> None:
    scores = scores_of("causal")
    lse = scores.log_sum_exp(slice(0, 31))
    picture = pooled(
        scores, slice(0, 31), slice(0, 37), lse, 31, "mean"
    )  # blocks of 1 × 2, the last of 1 × 1
    widths = torch.tensor([2.0] * 18 + [1.0])
    torch.testing.assert_close((picture * widths).sum(-1), torch.ones(4, 31))


def test_no_positions_give_an_empty_picture() -> None:
    scores = Scores(torch.zeros(2, 0, 4), torch.zeros(2, 5, 4), 1.0)
    assert pooled(scores, slice(0, 0), slice(0, 5), torch.zeros(2, 0), 4, "max").shape == (2, 0, 3)
    no_keys = Scores(torch.zeros(2, 3, 4), torch.zeros(2, 0, 4), 1.0)
    assert (no_keys.log_sum_exp(slice(0, 3)) == -torch.inf).all()


def test_no_tile_holds_more_than_a_bounded_number_of_values(monkeypatch: Any) -> None:
    largest = 0
    real = Scores._products

    def measured(self: Scores, rows: slice, cols: slice) -> Tensor:
        nonlocal largest
        product = real(self, rows, cols)
        largest = max(largest, product.numel())
        return product

    monkeypatch.setattr(Scores, "_products", measured)
    scores = Scores(torch.zeros(1, 4096, 4), torch.zeros(1, 4096, 4), 1.0)
    lse = scores.log_sum_exp(slice(0, 4096))
    pooled(scores, slice(0, 4096), slice(0, 4096), lse, 256, "max")
    assert 0 < largest <= tiles.TILE < 4096 * 4096 // 8


def test_tiles_beyond_the_diagonal_are_not_computed(monkeypatch: Any) -> None:
    computed = 0
    real = Scores._products

    def counted(self: Scores, rows: slice, cols: slice) -> Tensor:
        nonlocal computed
        computed += (rows.stop - rows.start) * (cols.stop - cols.start)
        return real(self, rows, cols)

    monkeypatch.setattr(tiles, "TILE", 64 * 64)
    monkeypatch.setattr(tiles, "_TILE_ROWS", 64)
    monkeypatch.setattr(tiles, "_TILE_COLUMNS", 64)
    monkeypatch.setattr(Scores, "_products", counted)
    scores = Scores(random(1, 1024, 4), random(1, 1024, 4), 1.0, mask=masks.causal())
    pooled(scores, slice(0, 1024), slice(0, 1024), torch.zeros(1, 1024), 256, "max")
    assert computed == 64 * 64 * (16 * 17 // 2)  # the diagonal tiles and those below it
