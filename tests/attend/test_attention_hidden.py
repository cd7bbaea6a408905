"""Rows that see nothing, and garbage behind masks: never in an output, never in a gradient."""

from __future__ import annotations

import math

import pytest
import torch
from torch.testing import assert_close

import regard
from regard import masks

N = 24
VISIBLE = torch.arange(N) % 5 > 0
HIDING = {
    "key mask": {"key_mask": VISIBLE[None].expand(2, -1)},
    "rule of padding": {"mask": masks.padding(VISIBLE[None])},
    "mask": {"mask": VISIBLE.expand(N, N)},
    "mask of items": {"mask": VISIBLE.expand(2, 1, N, N)},
    "mask of heads": {"mask": VISIBLE.expand(1, 4, N, N)},
    "bias": {"bias": torch.zeros(N, N).masked_fill(~VISIBLE, -math.inf)},
    "causal and key mask": {"key_mask": VISIBLE[None], "causal": True},
    "window and key mask": {"key_mask": VISIBLE[None], "window": (3, 2)},
    "softcap": {"key_mask": VISIBLE[None], "softcap": 2.0},
    "temperature zero": {"key_mask": VISIBLE[None], "temperature": 0.0},
    "temperature infinity": {"key_mask": VISIBLE[None], "temperature": math.inf},
}


def three(seed=0, group=2):
    generator = torch.Generator().manual_seed(seed)
    shapes = [(2, 2 * group, N, 8), (2, 2, N, 8), (2, 2, N, 8)]
    return [torch.randn(shape, generator=generator) for shape in shapes]


def grads_of(query, key, value, **asked):
    leaves = [x.clone().requires_grad_() for x in (query, key, value)]
    got = regard.attention(*leaves, **asked, return_lse=True)
    loss = got.output.square().sum() + got.lse.masked_fill(got.lse == -math.inf, 0).sum()
    if got.weights is not None:
        loss = loss + got.weights.square().sum()
    return torch.autograd.grad(loss, leaves)


@pytest.mark.parametrize("name", HIDING)
@pytest.mark.parametrize("garbage", [math.nan, math.inf, -math.inf, 3e38])
@pytest.mark.parametrize("with_weights", [False, True])
def test_what_a_mask_hides_changes_neither_output_nor_gradient(name, garbage, with_weights):
    query, key, value = three()
    asked = HIDING[name] | {"return_weights": with_weights}
    hidden = ~VISIBLE[:, None]
    dirty = key.masked_fill(hidden, garbage), value.masked_fill(hidden, garbage)
    clean = regard.attention(query, key.masked_fill(hidden, 0), value.masked_fill(hidden, 0), **asked)
    got = regard.attention(query, *dirty, **asked)
    for one, two in zip(got, clean, strict=True) if with_weights else [(got, clean)]:
        if one is not None:
            assert_close(one, two, rtol=0, atol=1e-6)
    for one, two in zip(
        grads_of(query, *dirty, **asked),
        grads_of(query, key.masked_fill(hidden, 0), value.masked_fill(hidden, 0), **asked),
        strict=True,
    ):
        assert_close(one, two, rtol=0, atol=1e-5)


def test_unused_slots_of_a_cache_may_hold_anything():
    query, key, value = three()
    used = torch.arange(N)[None] < 10
    key[:, :, 10:], value[:, :, 10:] = math.nan, math.inf
    for step in (query[:, :, :1], query[:, :, :3]):
        got = regard.attention(step, key, value, key_mask=used)
        assert_close(got, regard.attention(step, key[:, :, :10], value[:, :, :10]), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "asked", [{"causal": True}, {"window": (2, 1)}, {"mask": masks.documents([0] * 10 + [1] * 14)}], ids=str
)
def test_garbage_that_some_see_reaches_them_alone(asked):
    query, key, value = three()
    allowed = regard.attention(query, key, value, **asked, return_weights=True).weights[0, 0] > 0
    for bad_key, bad_value in ((math.nan, 0.0), (0.0, math.nan)):
        key_, value_ = key.clone(), value.clone()
        key_[:, :, 12] += bad_key
        value_[:, :, 12] += bad_value
        got = regard.attention(query, key_, value_, **asked)
        assert torch.equal(got.isnan().any(dim=-1)[0, 0], allowed[:, 12])
        clean = regard.attention(query, key, value, **asked)
        assert_close(got[:, :, ~allowed[:, 12]], clean[:, :, ~allowed[:, 12]], rtol=0, atol=1e-6)


EMPTY = {
    "mask": {"mask": torch.arange(N)[:, None].expand(N, N) != 3},
    "mask of items": {
        "mask": torch.ones(2, 1, N, N, dtype=torch.bool).index_fill(2, torch.tensor([3]), False)
    },
    "item of padding alone": {"key_mask": torch.tensor([[False], [True]]).expand(2, N)},
    "padding on the left and causal": {"key_mask": torch.arange(N)[None] >= 4, "causal": True},
    "bias": {"bias": torch.zeros(N, N).index_fill(0, torch.tensor([3]), -math.inf)},
    "window over padding": {"key_mask": torch.arange(N)[None] >= 9, "window": (2, 2)},
    "rule": {"mask": masks.causal() & ~masks.prefix(4)},
}


@pytest.mark.parametrize("name", EMPTY)
@pytest.mark.parametrize("extra", [{}, {"softcap": 2.0}, {"temperature": 0.0}, {"temperature": 2.0}], ids=str)
def test_a_row_that_sees_no_key_gives_zero_and_minus_infinity_and_no_gradient(name, extra):
    query, key, value = three()
    asked = EMPTY[name] | extra
    output, weights, lse = regard.attention(query, key, value, **asked, return_weights=True, return_lse=True)
    empty = (weights == 0).all(dim=-1)
    assert empty.any()
    assert not empty.all()
    assert not output[empty].any()
    assert torch.equal(lse == -math.inf, empty)
    assert_close(weights[~empty].sum(dim=-1), torch.ones(int((~empty).sum())), rtol=0, atol=2e-6)
    assert not regard.attention(query, key, value, **asked)[empty].any()
    grads = grads_of(query, key, value, **asked)
    assert all(grad.isfinite().all() for grad in grads)
    assert not grads[0][empty].any()
    poisoned = grads_of(query.masked_fill(empty[..., None], math.nan), key, value, **asked)
    for one, two in zip(grads, poisoned, strict=True):
        assert_close(one, two, rtol=0, atol=1e-5)


def test_more_queries_than_keys_leave_the_first_rows_empty_under_a_causal_mask():
    query, key, value = three()
    got = regard.attention(query, key[:, :, :10], value[:, :, :10], causal=True, return_lse=True)
    assert not got.output[:, :, :14].any()
    assert (got.lse[:, :, :14] == -math.inf).all()
    assert got.lse[:, :, 14:].isfinite().all()


@pytest.mark.parametrize("extra", [{}, {"causal": True}, {"softcap": 1.0}, {"temperature": 0.0}], ids=str)
def test_without_keys_the_output_is_zero_and_without_queries_empty(extra):
    query, key, value = three()
    asked = extra | {"return_weights": True, "return_lse": True}
    none = regard.attention(query, key[:, :, :0], value[:, :, :0], **asked)
    assert none.output.shape == (2, 4, N, 8)
    assert not none.output.any()
    assert none.weights.shape == (2, 4, N, 0)
    assert (none.lse == -math.inf).all()
    assert regard.attention(query[:, :, :0], key, value, **asked).output.shape == (2, 4, 0, 8)
    assert regard.attention(query[:0], key[:0], value[:0], **asked).output.shape == (0, 4, N, 8)


def test_without_channels_all_keys_have_equal_weight():
    query, key, value = three()
    got = regard.attention(query[..., :0], key[..., :0], value, return_weights=True)
    assert_close(got.output[:, ::2], value.mean(dim=2, keepdim=True).expand_as(value), rtol=0, atol=1e-6)
    assert_close(got.weights, torch.full_like(got.weights, 1 / N))


def test_a_product_that_overflows_float16_is_scaled_first():
    query = torch.full((1, 1, 4, 64), 110.7, dtype=torch.float16)
    value = torch.arange(4.0).half().reshape(1, 1, 4, 1).expand(-1, -1, -1, 64)
    got = regard.attention(query, query, value, return_weights=True, return_lse=True)
    assert (query.float() @ query.float().mT).max() > 784_000
    assert_close(got.output, torch.full_like(got.output, 1.5))
    assert got.lse.isfinite().all()
    soft = regard.attention(query, query, value, softcap=30.0)
    assert_close(soft, torch.full_like(soft, 1.5))


def test_very_negative_logits_are_not_mistaken_for_masked_ones():
    query, key, value = three()
    asked = {"bias": torch.full((N, N), -1e30), "key_mask": torch.arange(N)[None] < 3}
    got = regard.attention(query, key, value, **asked, return_weights=True)
    assert_close(got.weights[..., :3].sum(dim=-1), torch.ones(2, 4, N), rtol=0, atol=1e-6)
    assert not got.weights[..., 3:].any()
