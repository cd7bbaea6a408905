"""The rule found for a mask says, cell by cell, what the mask said; and common masks become small rules."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard.attend import masks
from regard.attend.mask import Mask
from regard.record.rule import rule_of

SMALLEST = torch.finfo(torch.float32).min


def full(rule: Mask | None, lengths: tuple[int, int], items: int) -> Tensor:
    if rule is None:
        return torch.ones(items, 1, *lengths, dtype=torch.bool)
    return rule.full(lengths).broadcast_to((items, 1, *lengths))


def keys(*lengths: int, n: int, left: bool = False) -> Tensor:
    rows = torch.stack([torch.arange(n) < length for length in lengths])
    return rows.flip(1) if left else rows


def stored_bytes(rule: Mask | None) -> int:
    return 0 if rule is None else sum(t.numel() * t.element_size() for t in rule.state()[1].values())


CASES = {
    "nothing forbidden": (torch.ones(2, 1, 40, 40, dtype=torch.bool), "None"),
    "padding, built in full": (keys(40, 25, n=40)[:, None, None].repeat(1, 1, 40, 1), "key_mask"),
    "padding, expanded": (keys(40, 25, n=40)[:, None, None].expand(2, 1, 40, 40), "key_mask"),
    "padding, one row": (keys(40, 25, n=40)[:, None, None], "key_mask"),
    "causal": (torch.ones(2, 1, 40, 40).tril().bool(), "causal"),
    "causal on cached keys": (torch.ones(1, 1, 7, 40).tril(33).bool(), "causal"),
    "causal, padding left": (
        torch.ones(2, 1, 40, 40).tril().bool() & keys(40, 25, n=40, left=True)[:, None, None],
        "causal",
    ),
    "window to the left": (masks.window(5, 0).full((40, 40))[None, None], "window"),
    "window on both sides, padding": (
        masks.window(5, 3).full((40, 40))[None, None] & keys(40, 25, n=40)[:, None, None],
        "window",
    ),
    "no rule": (torch.rand(2, 1, 40, 40, generator=torch.Generator().manual_seed(0)) > 0.5, "dense"),
    "one per head": (torch.rand(1, 4, 40, 40, generator=torch.Generator().manual_seed(0)) > 0.5, "dense"),
    "a prefix": ((torch.arange(40) < 9) | torch.ones(40, 40).tril().bool(), "prefix"),
    "a prefix each, padding": (
        (masks.causal() | masks.prefix([9, 4])).full((40, 40)) & keys(40, 25, n=40)[:, None, None],
        "prefix",
    ),
    "packed texts, causal": (
        (masks.documents([0] * 9 + [1] * 20 + [2] * 11) & masks.causal()).full((40, 40)),
        "documents",
    ),
    "packed images": (masks.documents([0] * 9 + [1] * 31).full((40, 40)), "documents"),
    "chunks, padding left": (
        (masks.documents([0] * 15 + [1] * 8 + [2] * 8 + [3] * 9) & masks.causal()).full((40, 40))
        & keys(40, 25, n=40, left=True)[:, None, None],
        "documents",
    ),
}


@pytest.mark.parametrize("as_float", [False, True], ids=["boolean", "float"])
@pytest.mark.parametrize("case", CASES)
def test_rule_equals_the_mask(case: str, as_float: bool) -> None:
    allowed, kind = CASES[case]
    allowed = allowed.reshape((1,) * (4 - allowed.ndim) + tuple(allowed.shape))
    lengths = (7 if "cached" in case else 40, 40)
    given = torch.where(allowed, 0.0, SMALLEST) if as_float else allowed
    rule, bias = rule_of(given, False, lengths)
    assert bias is None
    assert kind in repr(rule)
    if kind != "dense":
        assert stored_bytes(rule) <= 2 * 5 * 40  # grows with n, not with n × n
    expected = allowed.broadcast_to((*allowed.shape[:2], *lengths))
    if allowed.shape[1] == 1:
        assert torch.equal(full(rule, lengths, allowed.shape[0]), expected)
    else:
        assert rule is not None
        assert torch.equal(rule.full(lengths), expected)


@settings(deadline=None)
@given(
    left=st.integers(0, 12),
    right=st.integers(0, 12),
    padding=st.lists(st.integers(1, 12), min_size=1, max_size=3),
    on_the_left=st.booleans(),
    flip=st.one_of(st.none(), st.tuples(st.integers(0, 11), st.integers(0, 11))),
)
def test_rule_equals_any_window_with_padding_and_any_exception_to_it(
    left: int, right: int, padding: list[int], on_the_left: bool, flip: tuple[int, int] | None
) -> None:
    allowed = masks.window(left, right).full((12, 12)) & keys(*padding, n=12, left=on_the_left)[:, None, None]
    if flip is not None:
        allowed[0, 0, flip[0], flip[1]] ^= True
    rule, bias = rule_of(allowed, False, (12, 12))
    assert bias is None
    assert torch.equal(full(rule, (12, 12), len(padding)), allowed)


@settings(deadline=None)
@given(
    lengths=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    causal=st.booleans(),
    prefix=st.integers(0, 6),
    padding=st.integers(0, 5),
    on_the_left=st.booleans(),
)
def test_rule_equals_packed_texts_and_prefixes_with_padding(
    lengths: list[int], causal: bool, prefix: int, padding: int, on_the_left: bool
) -> None:
    n = sum(lengths)
    packed = masks.documents([i for i, length in enumerate(lengths) for _ in range(length)])
    kept = keys(n, max(1, n - padding), n=n, left=on_the_left)[:, None, None]
    for mask in (packed & masks.causal() if causal else packed, masks.causal() | masks.prefix(prefix)):
        allowed = mask.full((n, n)) & kept
        rule, bias = rule_of(allowed, False, (n, n))
        assert bias is None
        assert torch.equal(full(rule, (n, n), 2), allowed)


def test_numbers_in_a_float_mask_are_kept_as_bias() -> None:
    slopes = -(torch.arange(6)[:, None] - torch.arange(6)).abs().float()
    given = torch.where(torch.ones(6, 6).tril().bool(), slopes, SMALLEST)[None, None]
    rule, bias = rule_of(given, False, (6, 6))
    assert repr(rule) == "causal()"
    assert bias is not None
    assert torch.equal(bias[0, 0].tril(), slopes.tril())
    assert bias.triu(1).count_nonzero() == 0


@pytest.mark.parametrize("least", [SMALLEST, -torch.inf])
def test_a_mask_of_zeros_and_minus_infinity_leaves_no_bias(least: float) -> None:
    given = torch.zeros(6, 6).masked_fill(torch.ones(6, 6).triu(1).bool(), least)
    rule, bias = rule_of(given, False, (6, 6))
    assert repr(rule) == "causal()"
    assert bias is None


def test_the_triangle_that_a_kernel_draws_itself_is_upper_left() -> None:
    assert repr(rule_of(None, True, (6, 6))[0]) == "causal()"
    rule, _ = rule_of(None, True, (3, 6))
    assert rule is not None
    assert torch.equal(rule.full((3, 6)), torch.ones(3, 6).tril().bool())


def test_what_repeats_is_kept_once() -> None:
    pattern = torch.rand(40, 40, generator=torch.Generator().manual_seed(0)) > 0.5
    rule, _ = rule_of(pattern.expand(8, 1, 40, 40).clone(), False, (40, 40))
    assert stored_bytes(rule) == 40 * 40
