"""`scaled_dot_product_attention` gives what PyTorch's gives, and 0 where that gives nonsense."""

from __future__ import annotations

import inspect

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention as theirs
from torch.testing import assert_close

from regard import scaled_dot_product_attention as ours
from regard.errors import InvalidArgument


def three(*leading, queries=5, keys=7, channels=8):
    generator = torch.Generator().manual_seed(0)
    shapes = [(*leading, n, channels) for n in (queries, keys, keys)]
    return [torch.randn(shape, generator=generator) for shape in shapes]


LEADING = [(), (3,), (2, 3), (2, 1, 3)]


@pytest.mark.parametrize("leading", LEADING, ids=str)
@pytest.mark.parametrize("lengths", [(5, 7), (7, 5), (6, 6)], ids=str)
def test_any_number_of_leading_axes_and_a_triangle_from_the_first_key(leading, lengths):
    tensors = three(*leading, queries=lengths[0], keys=lengths[1])
    for asked in ({}, {"is_causal": True}, {"scale": 0.2}):
        assert_close(ours(*tensors, **asked), theirs(*tensors, **asked), rtol=0, atol=2e-6)


@pytest.mark.parametrize("leading", LEADING, ids=str)
@pytest.mark.parametrize("boolean", [True, False])
def test_masks_of_any_rank_that_broadcasts(leading, boolean):
    tensors = three(*leading)
    shapes = [(5, 7), (1, 7), (*leading, 5, 7), (*(1,) * len(leading), 5, 7)]
    shapes += [(leading[-1], 5, 7)] if leading else []
    for shape in shapes:
        mask = torch.randn(shape, generator=torch.Generator().manual_seed(1))
        if boolean:
            mask = mask > -0.5
            mask[..., 0] = True
        assert_close(ours(*tensors, mask), theirs(*tensors, mask), rtol=0, atol=2e-6)


def test_leading_axes_broadcast_and_heads_group_on_request():
    query, key, value = three(2, 6)
    assert_close(ours(query, key[:1], value[:, :1]), theirs(query, key[:1], value[:, :1].expand(2, 6, 7, 8)))
    grouped = (query, key[:, :2], value[:, :2])
    assert_close(ours(*grouped, enable_gqa=True), theirs(*grouped, enable_gqa=True), rtol=0, atol=2e-6)
    three_axes = (query[0], key[0, :2], value[0, :2])
    repeated = (query[0], *(x.repeat_interleave(3, dim=0) for x in three_axes[1:]))
    assert_close(ours(*three_axes, enable_gqa=True), theirs(*repeated), rtol=0, atol=2e-6)


def test_dropout_is_applied_whenever_it_is_asked_for():
    tensors = three(2, 3)
    torch.manual_seed(0)
    dropped = ours(*tensors, dropout_p=0.5)
    assert not torch.allclose(dropped, ours(*tensors))
    assert torch.equal(ours(*tensors, dropout_p=0.0), ours(*tensors))


def test_a_row_without_keys_is_zero_and_masks_combine_with_is_causal():
    query, key, value = three(2, 3, queries=7)
    mask = torch.ones(7, 7, dtype=torch.bool)
    mask[:, 0] = False
    got = ours(query, key, value, mask, is_causal=True)
    assert not got[:, :, 0].any()
    assert_close(got[:, :, 1:], theirs(query, key, value, mask.tril())[:, :, 1:], rtol=0, atol=2e-6)


def test_names_order_and_defaults_are_those_of_pytorch():
    names = ["query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa"]
    parameters = inspect.signature(ours).parameters
    assert list(parameters) == names
    assert [parameters[name].default for name in names[3:]] == [None, 0.0, False, None, False]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"attn_mask": torch.ones(5, 6)}, r"attn_mask must broadcast to \(2, 3, 5, 7\); got \(5, 6\)"),
        (
            {"attn_mask": torch.ones(5, 7, dtype=torch.int64)},
            "attn_mask must be boolean or floating; got torch.int64",
        ),
        ({"query": torch.ones(8)}, "must end in the axes"),
    ],
)
def test_what_cannot_be_right_is_refused(change, says):
    query, key, value = three(2, 3)
    with pytest.raises(InvalidArgument, match=says):
        ours(**({"query": query, "key": key, "value": value} | change))
