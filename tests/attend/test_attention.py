"""`attention` against the float64 formula, on every path, with everything that composes with it."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

import regard
from regard import masks
from regard.attend import attention as module
from regard.attend import formula, fused, patterned, split
from regard.attend.reference import Attended, reference_attention

EPS = 2e-6  # float32, logits of a few units: a dozen roundings of numbers of size one


def tensors(seed, *shapes, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]


def oracle(query, key, value, **asked) -> Attended:
    """The formula in float64."""
    wide = {name: x.double() if name == "bias" and x is not None else x for name, x in asked.items()}
    return reference_attention(
        query.detach().double(), key.detach().double(), value.detach().double(), **wide
    )


def assert_attended(got, expected, atol=EPS):
    for name, one, two in zip(Attended._fields, got, expected, strict=True):
        if one is not None:
            assert_close(
                one.detach().double(),
                two.double(),
                rtol=0,
                atol=atol,
                msg=lambda text, n=name: f"{n}: {text}",
            )


@st.composite
def problems(draw):
    """Shapes, masks, windows, groups, strides and empty sizes."""
    batch, kv_heads, group = (
        draw(st.integers(1, 2)),
        draw(st.integers(1, 2)),
        draw(st.sampled_from([1, 2, 4])),
    )
    queries, keys = draw(st.sampled_from([0, 1, 2, 5, 17, 33])), draw(st.sampled_from([0, 1, 3, 17, 33, 70]))
    keys = queries if draw(st.booleans()) else keys
    channels, value_channels = draw(st.sampled_from([0, 1, 8])), draw(st.sampled_from([1, 8, 12]))
    seed, heads = draw(st.integers(0, 999)), kv_heads * group
    query, key, value, noise = tensors(
        seed,
        (batch, heads, queries, channels),
        (batch, kv_heads, keys, channels),
        (batch, kv_heads, keys, value_channels),
        (batch, heads, queries, keys),
    )
    if draw(st.booleans()):  # as they come from a projection, or worse
        query, key, value = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in (query, key, value))
    if draw(st.booleans()):
        query, key, value = (x.mT.contiguous().mT for x in (query, key, value))
    asked = {}
    if draw(st.booleans()):
        asked["causal"] = True
    if draw(st.booleans()):
        asked["key_mask"] = noise.sum((1, 2)) > 0
    asked["window"] = draw(st.sampled_from([None, None, (2, 0), (0, 3), (None, 1), (4, None)]))
    form = draw(st.sampled_from(["none", "none", "one", "heads", "items", "rows", "rule", "sum", "blocks"]))
    asked["mask"] = {
        "none": None,
        "one": noise[0, 0] > -0.5,
        "heads": noise[:1] > 0.3,
        "items": noise[:, :1] > 0.3,
        "rows": noise[..., :1] > 0 if keys else None,
        "rule": masks.causal() | masks.prefix(2),
        "sum": masks.padding([1] * batch) & masks.window(3, 3) & masks.causal(),
        "blocks": masks.blocks(size=4),
    }[form]
    if draw(st.booleans()):
        asked["bias"] = (noise if draw(st.booleans()) else noise[:1, :, :1]).flip(-1)
        asked["bias"] = asked["bias"].masked_fill(asked["bias"] > 1, -math.inf)
    asked["scale"] = draw(st.sampled_from([None, 0.3]))
    asked["temperature"] = draw(st.sampled_from([1.0, 1.0, 0.7, 3.0, math.inf]))
    asked["softcap"] = draw(st.sampled_from([None, None, 2.0]))
    return query, key, value, asked


@settings(max_examples=250, deadline=None, derandomize=True)
@given(problems(), st.booleans(), st.booleans())
def test_output_weights_and_lse_equal_the_formula(problem, with_weights, with_lse):
    query, key, value, asked = problem
    got = regard.attention(query, key, value, **asked, return_weights=with_weights, return_lse=with_lse)
    got = got if isinstance(got, Attended) else Attended(got)
    assert (got.weights is not None, got.lse is not None) == (with_weights, with_lse)
    assert_attended(got, oracle(query, key, value, **asked))


@settings(max_examples=100, deadline=None, derandomize=True)
@given(problems(), st.booleans(), st.booleans())
def test_gradients_equal_those_of_the_formula(problem, with_weights, with_lse):
    query, key, value, asked = problem
    ours = [x.clone().requires_grad_() for x in (query, key, value)]
    theirs = [x.double().requires_grad_() for x in (query, key, value)]
    got = regard.attention(*ours, **asked, return_weights=with_weights, return_lse=True)
    asked |= {"bias": asked["bias"].double()} if "bias" in asked else {}
    expected = reference_attention(*theirs, **asked)
    (seed,) = tensors(7, tuple(got.output.shape))
    seen = expected.lse > -math.inf

    def loss(result):
        total = (result.output * seed.to(result.output.dtype)).sum()
        if with_weights:
            total = total + (result.weights**2).sum()
        return total + result.lse.masked_fill(~seen, 0).sin().sum() if with_lse else total

    grads = torch.autograd.grad(loss(got), ours, allow_unused=True, materialize_grads=True)
    wanted = torch.autograd.grad(loss(expected), theirs, allow_unused=True, materialize_grads=True)
    for one, two in zip(grads, wanted, strict=True):
        assert_close(one.double(), two, rtol=1e-5, atol=1e-5)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(problems())
def test_what_is_asked_for_beside_the_output_never_changes_it(problem):
    query, key, value, asked = problem
    alone = regard.attention(query, key, value, **asked)
    beside = regard.attention(query, key, value, **asked, return_weights=True, return_lse=True)
    only_lse = regard.attention(query, key, value, **asked, return_lse=True)
    assert_close(beside.output, alone, rtol=0, atol=1e-6)
    assert_close(only_lse.output, alone, rtol=0, atol=1e-6)
    assert_close(only_lse.lse, beside.lse, rtol=0, atol=2e-6)


def test_asking_for_weights_or_lse_leaves_the_output_of_the_kernel_bit_for_bit():
    query, key, value = tensors(0, *[(2, 4, 150, 32)] * 3)
    for asked in ({}, {"causal": True}, {"key_mask": torch.arange(150)[None] < 90}):
        alone = regard.attention(query, key, value, **asked)
        more = regard.attention(query, key, value, **asked, return_weights=True, return_lse=True)
        assert torch.equal(alone, more.output)


PROBLEMS = {
    "plain": ((2, 4, 40, 16), (2, 4, 40, 16), {}),
    "window": ((1, 4, 600, 16), (1, 2, 600, 16), {"window": (40, 7)}),
    "window of a rule with global tokens": (
        (1, 4, 600, 16),
        (1, 2, 600, 16),
        {"mask": (masks.window(40, 40) | masks.global_tokens(5)) & masks.causal()},
    ),
    "bigbird": ((1, 2, 700, 16), (1, 2, 700, 16), {"mask": masks.bigbird(16) & masks.causal()}),
    "decoding": ((1, 8, 1, 16), (1, 1, 4099, 16), {"causal": True}),
    "decoding from a padded cache": (
        (3, 4, 2, 16),
        (3, 1, 5000, 16),
        {"key_mask": torch.arange(5000) < torch.tensor([[1], [2000], [4999]])},
    ),
    "decoding in a window": ((1, 4, 1, 16), (1, 2, 900, 16), {"window": (99, 0)}),
    "a piece of a prompt": ((1, 4, 30, 16), (1, 2, 200, 16), {"causal": True}),
    "more queries than keys": ((1, 2, 30, 16), (1, 2, 20, 16), {"causal": True}),
    "few rows of a group with a mask each": (
        (2, 4, 3, 16),
        (2, 2, 50, 16),
        {"mask": torch.arange(2 * 4 * 3 * 50).reshape(2, 4, 3, 50) % 7 > 2},
    ),
    "a rule of heads": (
        (1, 4, 40, 16),
        (1, 2, 40, 16),
        {"mask": masks.blocks(torch.rand(4, 5, 5, generator=torch.Generator().manual_seed(1)) > 0.5, size=8)},
    ),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_every_path_that_takes_a_problem_gives_the_same(name, monkeypatch):
    """Each path in its turn, with more threads than heads so that decoding splits its keys."""
    query_shape, key_shape, asked = PROBLEMS[name]
    query, key, value = tensors(3, query_shape, key_shape, key_shape)
    expected = oracle(query, key, value, **asked)
    threads = torch.get_num_threads()
    torch.set_num_threads(4)
    taken = []

    def only(path):
        def attend(problem):
            taken.append(path)
            return path.attend(problem)

        return (module.Path(path.takes, attend), module.Path(formula.takes, formula.attend))

    try:
        for path in (patterned, split, fused, formula):
            monkeypatch.setattr(module, "PATHS", only(path))
            assert_attended(regard.attention(query, key, value, **asked, return_lse=True), expected)
    finally:
        torch.set_num_threads(threads)
    first = {"window": patterned, "bigbird": patterned, "decoding": split, "plain": fused}.get(
        name.split()[0]
    )
    assert first is None or name == "decoding in a window" or taken[0] is first


def test_a_large_mask_is_taken_some_rows_at_a_time(monkeypatch):
    query, key, value = tensors(4, *[(1, 2, 700, 8)] * 3)
    mask = masks.causal() | masks.prefix(5)
    whole = regard.attention(query, key, value, mask=mask, return_lse=True)
    soft = regard.attention(query, key, value, mask=mask, softcap=2.0, return_weights=True, return_lse=True)
    monkeypatch.setattr(fused, "MASK_AT_ONCE", 1 << 10)
    monkeypatch.setattr(formula, "ROWS_AT_ONCE", 1 << 16)
    assert_attended(regard.attention(query, key, value, mask=mask, return_lse=True), whole)
    asked = {"mask": mask, "softcap": 2.0, "return_weights": True, "return_lse": True}
    assert_attended(regard.attention(query, key, value, **asked), soft)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("asked", [{}, {"causal": True}, {"softcap": 5.0}, {"window": (3, 0)}], ids=str)
def test_half_precision_errs_at_most_twice_as_much_as_pytorch(dtype, asked):
    query, key, value = tensors(5, *[(2, 4, 80, 32)] * 3, dtype=dtype)
    got = regard.attention(query, key, value, **asked, return_weights=True, return_lse=True)
    exact = oracle(query, key, value, **asked)
    allowed = None if not asked or "softcap" in asked else exact.weights > 0
    theirs = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=allowed)
    expected = oracle(query, key, value, mask=allowed).output
    their_error = (theirs.double() - expected).abs().max()
    assert got.output.dtype == got.weights.dtype == dtype
    assert got.lse.dtype == torch.float32
    assert (got.output.double() - exact.output).abs().max() <= 2 * their_error
    assert (got.weights.double() - exact.weights).abs().max() <= torch.finfo(dtype).eps
    assert (got.lse.double() - exact.lse).abs().max() <= 1e-4  # the kernel's exponential for these types


def test_error_at_large_logits_grows_no_faster_than_their_rounding():
    """A logit of size L is known to L·ε; weights and output follow it at most one to one, twice over."""
    query, key, value = tensors(6, *[(1, 2, 60, 16)] * 3)
    for size in (30.0, 300.0, 3000.0):
        got = regard.attention(size * query, key, value, return_weights=True)
        largest = (size * query @ key.mT).abs().max().item() / 4
        bound = 16 * largest * torch.finfo(torch.float32).eps * value.abs().max().item()
        assert (got.output - oracle(size * query, key, value).output).abs().max() <= bound
        assert_close(got.weights.sum(dim=-1), torch.ones(1, 2, 60), rtol=0, atol=1e-6)


def test_autocast_lowers_the_precision_of_the_kernel_alone():
    query, key, value = tensors(8, *[(1, 2, 20, 16)] * 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = regard.attention(query, key.bfloat16(), value, softcap=3.0, return_weights=True)
    low = [x.bfloat16() for x in (query, key, value)]
    assert got.output.dtype == torch.bfloat16
    assert torch.equal(got.output, regard.attention(*low, softcap=3.0))
