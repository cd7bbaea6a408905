"""What is true of every attention, whatever computes it."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

import regard
from regard import masks

examples = settings(max_examples=40, deadline=None, derandomize=True)
ASKED = st.sampled_from(
    [
        {},
        {"causal": True},
        {"window": (3, 1)},
        {"window": (2, 0), "causal": True},
        {"key_mask": torch.arange(20)[None] < 13},
        {"mask": masks.strided(4)},
        {"softcap": 2.0},
        {"temperature": 0.5},
        {"temperature": 0.0},
        {"temperature": math.inf, "causal": True},
    ]
)


def three(seed, heads=2, length=20, channels=8):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(3, 1, heads, length, channels, generator=generator).unbind()


@examples
@given(st.integers(0, 999), ASKED)
def test_weights_are_not_negative_and_rows_sum_to_one(seed, asked):
    _, weights, lse = regard.attention(*three(seed), **asked, return_weights=True, return_lse=True)
    assert (weights >= 0).all()
    assert_close(weights.sum(dim=-1), torch.ones_like(lse), rtol=0, atol=2e-6)


@examples
@given(st.integers(0, 999), ASKED)
def test_output_is_weights_times_values(seed, asked):
    query, key, value = three(seed)
    output, weights, _ = regard.attention(query, key, value, **asked, return_weights=True)
    assert_close(output, weights @ value, rtol=0, atol=2e-6)


@examples
@given(st.integers(0, 999), ASKED)
def test_output_never_leaves_the_hull_of_the_values(seed, asked):
    query, key, value = three(seed)
    output = regard.attention(query, key, value, **asked)
    assert (output <= value.amax(dim=2, keepdim=True) + 1e-6).all()
    assert (output >= value.amin(dim=2, keepdim=True) - 1e-6).all()


@examples
@given(st.integers(0, 999))
def test_order_of_keys_does_not_matter_and_order_of_queries_is_that_of_outputs(seed):
    query, key, value = three(seed)
    order = torch.randperm(20, generator=torch.Generator().manual_seed(seed))
    plain = regard.attention(query, key, value)
    assert_close(regard.attention(query, key[:, :, order], value[:, :, order]), plain, rtol=0, atol=1e-6)
    assert_close(regard.attention(query[:, :, order], key, value), plain[:, :, order], rtol=0, atol=1e-6)


@examples
@given(
    st.integers(0, 999),
    st.integers(1, 69),
    st.sampled_from(
        [{}, {"window": (5, 0)}, {"softcap": 1.0}, {"mask": masks.strided(3)}, {"temperature": 0.0}]
    ),
    st.sampled_from([1.0, 1e30, math.inf, math.nan]),
)
def test_changing_the_future_changes_nothing_exactly(seed, now, asked, future):
    query, key, value = three(seed, length=70)
    asked = asked | {"causal": True, "return_weights": True, "return_lse": True}
    before = regard.attention(query, key, value, **asked)
    changed = [x.clone() for x in (query, key, value)]
    for x in changed:
        x[:, :, now:] = future
    after = regard.attention(*changed, **asked)
    assert torch.equal(before.output[:, :, :now], after.output[:, :, :now])
    assert torch.equal(before.weights[:, :, :now, :now], after.weights[:, :, :now, :now])
    assert torch.equal(before.lse[:, :, :now], after.lse[:, :, :now])
    assert not after.weights[:, :, :now, now:].any()


@pytest.mark.parametrize("asked", [{}, {"causal": True}, {"softcap": 3.0}], ids=str)
def test_towards_temperature_zero_the_output_becomes_that_of_the_largest_logit(asked):
    query, key, value = (x.double() for x in three(1))
    coldest = regard.attention(query, key, value, temperature=0.0, **asked)
    for temperature in (1e-5, 1e-7, 1e-30, 5e-324):
        colder = regard.attention(query, key, value, temperature=temperature, **asked)
        assert_close(colder, coldest, rtol=0, atol=1e-12)
    best = regard.attention(query, key, value, return_weights=True, **asked).weights.argmax(dim=-1)
    assert_close(coldest, torch.take_along_dim(value, best[..., None], dim=2), rtol=0, atol=0)


@pytest.mark.parametrize("asked", [{}, {"causal": True}, {"softcap": 3.0}], ids=str)
def test_towards_temperature_infinity_the_output_becomes_the_mean_of_the_allowed_values(asked):
    query, key, value = (x.double() for x in three(2))
    hottest = regard.attention(query, key, value, temperature=math.inf, **asked)
    for temperature in (1e9, 1e30, 1e300):
        hotter = regard.attention(query, key, value, temperature=temperature, **asked)
        assert_close(hotter, hottest, rtol=0, atol=1e-7)
    count = torch.arange(1, 21).double()[:, None]
    mean = (
        value.cumsum(dim=2) / count if "causal" in asked else value.mean(dim=2, keepdim=True).expand_as(value)
    )
    assert_close(hottest, mean, rtol=0, atol=1e-14)


def test_at_temperature_zero_ties_share():
    value = torch.tensor([1.0, 3.0, 8.0]).reshape(1, 1, 3, 1)
    key = torch.tensor([2.0, 2.0, 1.0]).reshape(1, 1, 3, 1)
    assert regard.attention(torch.ones(1, 1, 1, 1), key, value, temperature=0.0).item() == 2.0


@pytest.mark.parametrize("group", [1, 4])
@pytest.mark.parametrize("asked", [{}, {"window": (6, 0)}], ids=str)
def test_one_query_at_a_time_over_a_cache_equals_all_at_once(group, asked):
    query, _, _ = three(3, heads=2 * group)
    _, key, value = three(4)
    whole = regard.attention(query, key, value, causal=True, **asked)
    for i in range(20):
        step = regard.attention(
            query[:, :, i : i + 1], key[:, :, : i + 1], value[:, :, : i + 1], causal=True, **asked
        )
        assert_close(step, whole[:, :, i : i + 1], rtol=0, atol=1e-6)
    piece = regard.attention(query[:, :, 12:], key, value, causal=True, **asked)
    assert_close(piece, whole[:, :, 12:], rtol=0, atol=1e-6)


def test_a_window_as_wide_as_the_sequence_is_no_window():
    query, key, value = three(5)
    assert torch.equal(
        regard.attention(query, key, value, window=(19, 19)), regard.attention(query, key, value)
    )
    wide = regard.attention(query, key, value, window=(19, 0))
    assert torch.equal(wide, regard.attention(query, key, value, causal=True))


def test_the_own_position_is_visible_in_the_narrowest_window():
    query, key, value = three(6)
    assert_close(regard.attention(query, key, value, window=(0, 0)), value, rtol=0, atol=1e-6)


def test_two_equal_words_without_positions_get_equal_weight():
    query, key, value = three(7)
    key[:, :, 9] = key[:, :, 4]
    weights = regard.attention(query, key, value, return_weights=True).weights
    assert torch.equal(weights[..., 9], weights[..., 4])


def test_adding_the_same_to_every_logit_of_a_row_changes_only_lse():
    query, key, value = three(8)
    plain = regard.attention(query, key, value, return_lse=True)
    moved = regard.attention(query, key, value, bias=torch.full((20, 20), 3.0), return_lse=True)
    assert_close(moved.output, plain.output, rtol=0, atol=1e-6)
    assert_close(moved.lse, plain.lse + 3, rtol=0, atol=2e-6)


def test_query_head_reads_the_key_head_of_its_group():
    query, _, _ = three(9, heads=6)
    _, key, value = three(10)
    for h in range(6):
        alone = regard.attention(query[:, h : h + 1], key[:, h // 3 :][:, :1], value[:, h // 3 :][:, :1])
        assert_close(regard.attention(query, key, value)[:, h : h + 1], alone, rtol=0, atol=1e-6)
