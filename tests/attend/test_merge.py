"""Attention over parts of the keys, merged, is attention over all of them."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

import regard
from regard.attend.reference import Attended
from regard.errors import InvalidArgument


def three(dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    shapes = [(2, 4, 6, 8), (2, 2, 15, 8), (2, 2, 15, 5)]
    return [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in shapes]


def attend_to(tensors, start, stop, key_mask=None):
    query, key, value = tensors
    masked = None if key_mask is None else key_mask[:, start:stop]
    return regard.attention(
        query, key[:, :, start:stop], value[:, :, start:stop], key_mask=masked, return_lse=True
    )


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 15), max_size=4), st.integers(0, 15))
def test_merged_is_whole_with_empty_ranges_and_padding(cuts, padding):
    tensors, key_mask = three(), torch.arange(15)[None] >= padding
    edges = [0, *sorted(cuts), 15]
    parts = [attend_to(tensors, a, b, key_mask) for a, b in pairwise(edges)]
    whole = attend_to(tensors, 0, 15, key_mask)
    for merged in (regard.merge(*parts), regard.merge(*parts[::-1])):
        assert_close(merged.output, whole.output, rtol=0, atol=1e-6)
        assert_close(merged.lse, whole.lse, rtol=0, atol=2e-6)


def test_merging_may_go_on_and_takes_pairs():
    tensors = three()
    one, two, three_ = (attend_to(tensors, *ends) for ends in ((0, 4), (4, 9), (9, 15)))
    merged = regard.merge(regard.merge(one, (two.output, two.lse)), three_)
    assert_close(merged.output, attend_to(tensors, 0, 15).output, rtol=0, atol=1e-6)


def test_a_part_of_nothing_takes_no_part_whatever_it_holds():
    part = attend_to(three(), 0, 15)
    nothing = Attended(torch.full_like(part.output, math.nan), lse=torch.full_like(part.lse, -math.inf))
    assert_close(regard.merge(part, nothing).output, part.output)
    both = regard.merge(nothing, nothing)
    assert not both.output.any()
    assert (both.lse == -math.inf).all()


def test_gradients_of_merged_are_those_of_whole():
    grads = []
    for cut in (15, 7):
        tensors = [x.requires_grad_() for x in three(torch.float64)]
        got = regard.merge(attend_to(tensors, 0, cut), attend_to(tensors, cut, 15))
        loss = got.output.square().sum() + got.lse.sin().sum()
        grads.append(torch.autograd.grad(loss, tensors))
    for one, two in zip(*grads, strict=True):
        assert_close(one, two, rtol=0, atol=1e-12)


def test_very_different_parts_merge_without_overflow():
    output = torch.ones(1, 1, 1, 2)
    merged = regard.merge((output, torch.full((1, 1, 1), 5000.0)), (-output, torch.full((1, 1, 1), -5000.0)))
    assert torch.equal(merged.output, output)
    assert merged.lse.item() == 5000.0


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ([], "merge needs at least one partial attention; got none"),
        ([Attended(torch.zeros(1, 1, 2, 3))], "must have its lse; got None. Ask for it with return_lse=True"),
        (
            [
                (torch.zeros(1, 1, 2, 3), torch.zeros(1, 1, 2)),
                (torch.zeros(1, 1, 4, 3), torch.zeros(1, 1, 4)),
            ],
            r"outputs \(1, 1, 2, 3\) and lses \(1, 1, 2\); got \(1, 1, 4, 3\) and \(1, 1, 4\)",
        ),
    ],
)
def test_what_cannot_be_merged_is_refused(parts, says):
    with pytest.raises(InvalidArgument, match=says):
        regard.merge(*parts)
