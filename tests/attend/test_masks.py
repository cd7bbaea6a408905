"""Mask rules against their definitions, on any rectangle, and through their stored state."""

from __future__ import annotations

import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard import masks
from regard.errors import InvalidArgument

LAYOUT = torch.tensor([[1, 0, 1], [1, 1, 0], [0, 1, 1]], dtype=torch.bool)
RULES = {
    "causal": masks.causal(),
    "window": masks.window(3, 1),
    "window without limit": masks.window(None, 2),
    "prefix": masks.prefix(3),
    "prefix per item": masks.prefix([1, 4]),
    "global tokens": masks.global_tokens(2),
    "strided": masks.strided(4),
    "strided alone": masks.strided(3, local=0),
    "padding": masks.padding([5, 9]),
    "padding on the left": masks.padding([5, 9], side="left"),
    "key mask": masks.padding(torch.arange(12)[None] % 3 > 0),
    "documents": masks.documents([0] * 5 + [1] * 7),
    "documents per item": masks.documents(torch.arange(24).reshape(2, 12) // 4),
    "local blocks": masks.blocks(size=5),
    "blocks": masks.blocks(LAYOUT, size=4),
    "blocks per head": masks.blocks(torch.stack([LAYOUT, LAYOUT.T]), size=4),
    "bigbird": masks.bigbird(2, global_blocks=1, random_blocks=1),
    "and": masks.causal() & masks.window(4, 4),
    "or": masks.window(1, 0) | masks.global_tokens(1),
    "not": ~masks.causal(),
    "nested": ~(masks.padding([4, 12]) | masks.causal()) & masks.prefix(8),
}
# (query position, key position) -> may attend; for one item, 12 positions
DEFINITIONS = {
    "causal": lambda p, j: j <= p,
    "window": lambda p, j: p - 3 <= j <= p + 1,
    "window without limit": lambda p, j: j <= p + 2,
    "prefix": lambda p, j: j < 3,
    "global tokens": lambda p, j: j < 2 or 0 <= p < 2,
    "strided": lambda p, j: abs(p - j) <= 4 or (p - j) % 4 == 0,
    "strided alone": lambda p, j: (p - j) % 3 == 0,
    "documents": lambda p, j: p >= 0 and (p < 5) == (j < 5),
    "local blocks": lambda p, j: p >= 0 and p // 5 == j // 5,
    "blocks": lambda p, j: p >= 0 and bool(LAYOUT[p // 4, j // 4]),
    "and": lambda p, j: p - 4 <= j <= p,
    "or": lambda p, j: p - 1 <= j <= p or j < 1 or p == 0,
    "not": lambda p, j: j > p,
}


@pytest.mark.parametrize("name", DEFINITIONS)
@pytest.mark.parametrize("queries", [1, 5, 12, 15])
def test_rule_is_its_definition_with_the_last_query_on_the_last_key(name, queries):
    said = RULES[name].full((queries, 12)).expand(queries, 12)
    for i in range(queries):
        for j in range(12):
            assert said[i, j] == DEFINITIONS[name](i + 12 - queries, j)


def test_padding_counts_keys_from_either_side():
    right = masks.padding([2, 0]).full((1, 3))[:, 0, 0].tolist()
    left = masks.padding([2, 0], side="left").full((1, 3))[:, 0, 0].tolist()
    assert right == [[True, True, False], [False] * 3]
    assert left == [[False, True, True], [False] * 3]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    name=st.sampled_from(sorted(RULES)),
    queries=st.integers(1, 12),
    corners=st.tuples(*[st.integers(0, 12) for _ in range(4)]),
)
def test_a_rectangle_is_cut_from_the_whole(name, queries, corners):
    rule, lengths = RULES[name], (queries, 12)
    top, bottom = sorted(min(c, queries) for c in corners[:2])
    left, right = sorted(corners[2:])
    whole = torch.broadcast_to(rule.full(lengths), (2, 2, queries, 12))
    tile = rule.tile(slice(top, bottom), slice(left, right), lengths)
    expected = whole[:, :, top:bottom, left:right]
    assert torch.equal(torch.broadcast_to(tile, expected.shape), expected)


@pytest.mark.parametrize("name", RULES)
def test_a_rule_survives_its_stored_state(name):
    rule = RULES[name]
    described, tensors = rule.state()
    again = masks.from_state(json.loads(json.dumps(described)), tensors)
    assert repr(again) == repr(rule)
    assert torch.equal(again.full((12, 12)), rule.full((12, 12)))


def test_dense_wraps_a_matrix_by_row_and_column_of_the_tensor():
    tensor = torch.rand(2, 1, 5, 12, generator=torch.Generator().manual_seed(0)) > 0.5
    rule = masks.dense(tensor)
    assert torch.equal(rule.tile(slice(1, 3), slice(4, 9), (5, 12)), tensor[..., 1:3, 4:9])


def test_bigbird_sees_window_global_and_that_many_random_blocks():
    rule = masks.bigbird(4, window=3, global_blocks=2, random_blocks=3)
    layout = rule.layout((80, 80))
    blocks = torch.arange(20)
    near = (blocks[:, None] - blocks).abs() <= 1
    assert layout[near].all()
    assert layout[:2].all()
    assert layout[:, :2].all()
    assert (layout[5:].sum(dim=-1) == 3 + 2 + 3)[:-1].all()
    assert torch.equal(layout, rule.layout((80, 80)))


def test_a_mask_draws_itself():
    assert str(masks.window(1, 0) & masks.padding([3])) == (
        "(window(left=1, right=0) & padding(lengths=[3], side='right'))\n■ · ·\n■ ■ ·\n· ■ ■"
    )
    assert masks.causal().draw(2, 4) == "■ ■ ■ ·\n■ ■ ■ ■"
    assert len(str(masks.documents([0] * 100)).splitlines()) == 33


def test_no_rule_builds_more_than_the_rectangle():
    far = 10**9
    rule = (masks.causal() & masks.window(5, 5)) | masks.global_tokens(3) | masks.strided(7)
    assert rule.tile(slice(far - 4, far), slice(far - 6, far), (far, far)).shape == (4, 6)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (
            lambda: masks.window(-1, 0),
            "window left must be a number of keys ≥ 0, or None for no limit; got -1",
        ),
        (lambda: masks.window(True, 0), "got True"),
        (lambda: masks.prefix(-2), "prefix n must be a number ≥ 0, or one whole number per item; got -2"),
        (lambda: masks.padding([1.5]), "padding lengths must be a number ≥ 0"),
        (lambda: masks.padding([1], side="up"), "side must be 'left' or 'right'"),
        (lambda: masks.dense(torch.ones(2, 2)), "mask must be boolean, True = may attend; got torch.float32"),
        (
            lambda: masks.dense(torch.ones(2, 2, 2, dtype=torch.bool)),
            r"Write mask\[:, None\] for one per item",
        ),
        (lambda: masks.blocks(size=0), "block size must be a number of positions ≥ 1; got 0"),
        (lambda: masks.blocks(LAYOUT[:2], size=4), r"block layout must be square.*got \(2, 3\)"),
        (
            lambda: masks.blocks(LAYOUT, size=4).full((13, 13)),
            "must cover 13 positions with 4 blocks of 4; got 3",
        ),
        (lambda: masks.bigbird(window=2), "window must be an odd number of blocks"),
        (lambda: masks.strided(0), "stride must be a number of keys ≥ 1; got 0"),
        (lambda: masks.documents([0.5]), "document ids must be whole numbers"),
        (
            lambda: masks.documents([0, 1]).full((3, 3)),
            "document ids must be as many as the sequence has, 3; got 2",
        ),
        (lambda: masks.from_state({"rule": "sieve"}, {}), "rule must be one of .*; got 'sieve'"),
        (lambda: masks.causal() and masks.prefix(1), "masks combine with & | ~"),
    ],
)
def test_what_cannot_be_right_is_refused_in_one_sentence(make, says):
    with pytest.raises(InvalidArgument, match=says):
        make()
