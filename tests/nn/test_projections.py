"""Projections: shapes of every grouping, one packed product equal to three, errors."""

from __future__ import annotations

import pytest
import torch

from regard.errors import InvalidArgument
from regard.nn import Projections


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize(("d_k", "d_v"), [(None, None), (5, 7), (3, None)])
@pytest.mark.parametrize("bias", [True, False])
def test_packed_product_equals_three_products(groups, d_k, d_v, bias):
    torch.manual_seed(0)
    parts = Projections(8, 4, num_kv_heads=groups, d_k=d_k, d_v=d_v, bias=bias).double()
    x, y, z = (torch.randn(2, n, 8, dtype=torch.float64) for n in (3, 6, 6))
    for given in ((x,), (x, y), (x, y, z), (x, None, x)):
        sources = (*given, *(None,) * (3 - len(given)))
        key = x if sources[1] is None else sources[1]
        value = key if sources[2] is None else sources[2]
        for got, source, (weight, b), heads in zip(
            parts(*given), (x, key, value), parts.parts(), (4, groups, groups), strict=True
        ):
            flat = source @ weight.T + (0 if b is None else b)
            expected = flat.reshape(2, source.shape[1], heads, -1).transpose(1, 2)
            torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)


def test_keys_and_values_may_come_from_other_widths():
    parts = Projections(8, 4, d_key_input=5, d_value_input=3)
    q, k, v = parts(torch.randn(2, 3, 8), torch.randn(2, 6, 5), torch.randn(2, 6, 3))
    assert (tuple(q.shape), tuple(k.shape), tuple(v.shape)) == ((2, 4, 3, 2), (2, 4, 6, 2), (2, 4, 6, 2))


def test_each_matrix_is_drawn_by_its_own_widths_and_biases_are_zero():
    torch.manual_seed(0)
    for weight, bias in Projections(256, 8, num_kv_heads=2).parts():
        bound = (6 / sum(weight.shape)) ** 0.5
        assert weight.abs().max() <= bound
        assert weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.02)
        assert bias is not None
        assert not bias.any()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            (512, 7),
            r"num_heads must divide d_model without remainder; got num_heads=7 and d_model=512. .*4, 8",
        ),
        ((0, 1), "d_model and num_heads must be at least 1; got 0 and 1"),
        ((8, 0), "d_model and num_heads must be at least 1; got 8 and 0"),
    ],
)
def test_head_counts_that_do_not_divide_are_refused(arguments, message):
    with pytest.raises(InvalidArgument, match=message):
        Projections(*arguments)


@pytest.mark.parametrize("groups", [3, 0, 16])
def test_group_counts_that_do_not_divide_are_refused(groups):
    with pytest.raises(
        InvalidArgument, match=rf"num_kv_heads must divide num_heads .* got num_kv_heads={groups} and"
    ):
        Projections(64, 8, num_kv_heads=groups)


def test_widths_below_one_are_refused():
    with pytest.raises(InvalidArgument, match="d_v must be at least 1; got 0"):
        Projections(8, 2, d_v=0)
