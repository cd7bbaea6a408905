"""MultiHeadAttention: the truths that hold for every option."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from regard import masks
from regard.attend.reference import Attended, reference_attention
from regard.errors import InvalidArgument
from regard.nn import Alibi, KVCache, MultiHeadAttention, RelativePositions, RotaryPositions

OPTIONS = {
    "plain": {},
    "without bias": {"bias": False},
    "grouped": {"num_kv_heads": 2},
    "multi-query": {"num_kv_heads": 1},
    "own widths": {"d_k": 6, "d_v": 3},
    "windowed": {"window": (2, 0)},
    "rotary": {"positions": RotaryPositions(4)},
    "alibi": {"positions": Alibi(4)},
    "relative": {"positions": RelativePositions(4)},
    "normalised": {"qk_norm": "rms", "positions": RotaryPositions(4)},
    "layer-normalised": {"qk_norm": "layer", "num_kv_heads": 2},
    "capped": {"softcap": 2.0, "scale": 0.7},
    "extra keys": {"add_bias_kv": True, "add_zero_attn": True},
}
each_option = pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())


def module(**options) -> MultiHeadAttention:
    torch.manual_seed(0)
    return MultiHeadAttention(16, 4, **options).double().eval()


def vectors(*shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def test_it_is_projections_formula_and_output_projection():
    attend = module(num_kv_heads=2, d_v=3)
    x, memory = vectors(2, 5, 16), vectors(2, 7, 16)
    q, k, v = (
        (source @ weight.T + bias).reshape(2, source.shape[1], heads, -1).transpose(1, 2)
        for source, (weight, bias), heads in zip(
            (x, memory, memory), attend.projections.parts(), (4, 2, 2), strict=True
        )
    )
    expected = reference_attention(q, k, v)
    got = attend(x, memory, return_weights=True)
    joined = expected.output.transpose(1, 2).reshape(2, 5, 12)
    assert_close(got.output, joined @ attend.output.weight.T + attend.output.bias, rtol=0, atol=1e-12)
    assert_close(got.weights, expected.weights, rtol=0, atol=1e-12)


@each_option
@pytest.mark.parametrize("causal", [False, True])
def test_weights_are_nonnegative_and_sum_to_one_and_change_nothing(options, causal):
    attend, x = module(causal=causal, **options), vectors(2, 6, 16)
    got = attend(x, return_weights=True)
    assert isinstance(got, Attended)
    assert got.weights.shape[:3] == (2, 4, 6)
    assert got.weights.min() >= 0
    assert_close(got.weights.sum(-1), torch.ones(2, 4, 6, dtype=torch.float64), rtol=0, atol=1e-12)
    assert_close(attend(x), got.output, rtol=0, atol=1e-12)


@each_option
def test_future_changes_nothing_when_causal(options):
    attend, x = module(causal=True, **options), vectors(1, 8, 16)
    changed = x.clone()
    changed[:, 5:] = 1e3
    assert torch.equal(attend(x)[:, :5], attend(changed)[:, :5])


@each_option
@pytest.mark.parametrize("kind", [{}, {"capacity": 12}], ids=["growing", "static"])
def test_cached_equals_uncached_at_every_step(options, kind):
    attend, x = module(causal=True, **options).float(), vectors(2, 12, 16).float()
    cache = KVCache(**kind)
    with torch.no_grad():
        whole, done = attend(x), 0
        for new in (3, 1, 1, 4, 1, 2):
            step = attend(x[:, done : done + new], cache=cache)
            assert_close(step, whole[:, done : done + new], rtol=0, atol=1e-6)
            done += new
    assert len(cache) == 12


@pytest.mark.parametrize("positions", [None, RotaryPositions(4), Alibi(4), RelativePositions(4)])
@given(steps=st.lists(st.integers(1, 7), min_size=1, max_size=6), window=st.integers(0, 5))
@settings(deadline=None, max_examples=15)
def test_sliding_cache_equals_uncached_windowed_attention(positions, steps, window):
    attend = module(causal=True, window=(window, 0), positions=positions).float()
    x, cache, done = vectors(2, sum(steps), 16).float(), KVCache(window=window), 0
    seen = torch.arange(sum(steps))[None] != 1  # one key is padding
    rule = masks.documents(torch.arange(sum(steps))[None] // 4)
    with torch.no_grad():
        whole = attend(x, key_mask=seen, mask=rule)
        for new in steps:
            end = done + new
            short = masks.documents(torch.arange(end)[None] // 4)
            step = attend(x[:, done:end], cache=cache, key_mask=seen[:, :end], mask=short)
            assert_close(step, whole[:, done:end], rtol=0, atol=1e-6)
            done = end


def test_cross_attention_projects_its_memory_once():
    attend, memory = module(num_kv_heads=2), vectors(2, 7, 16)
    cache, x = KVCache(), vectors(2, 5, 16)
    with torch.no_grad():
        whole = attend(x, memory)
        for i in range(5):
            step = attend(x[:, i : i + 1], memory if i == 0 else torch.zeros(2, 7, 16).double(), cache=cache)
            assert_close(step, whole[:, i : i + 1], rtol=0, atol=1e-12)
    assert len(cache) == 7


def test_without_positions_permuting_the_words_permutes_the_output():
    order = torch.randperm(9, generator=torch.Generator().manual_seed(0))
    x = vectors(1, 9, 16)
    for options in ({}, {"num_kv_heads": 2, "qk_norm": "rms"}, {"add_bias_kv": True}):
        attend = module(**options)
        assert_close(attend(x[:, order]), attend(x)[:, order], rtol=0, atol=1e-12)


@pytest.mark.parametrize("positions", [RotaryPositions(4), Alibi(4), RelativePositions(4)])
def test_with_positions_the_order_of_words_matters(positions):
    attend, x = module(positions=positions), vectors(1, 9, 16)
    order = torch.randperm(9, generator=torch.Generator().manual_seed(0))
    assert (attend(x[:, order]) - attend(x)[:, order]).abs().max() > 1e-3


def test_two_equal_words_get_equal_weight_until_positions_are_switched_on():
    x = vectors(1, 6, 16)
    x[:, 4] = x[:, 1]
    weights = module()(x, return_weights=True).weights
    assert_close(weights[..., 1], weights[..., 4], rtol=0, atol=1e-15)
    weights = module(positions=RotaryPositions(4))(x, return_weights=True).weights
    assert (weights[..., 1] - weights[..., 4]).abs().max() > 1e-3


def test_rotary_and_alibi_see_only_distances():
    """A chunk that starts later gives the same: the offset cancels (phases are float32)."""
    for positions in (RotaryPositions(4), Alibi(4)):
        attend, x, cache = (
            module(causal=True, window=(3, 0), positions=positions),
            vectors(1, 9, 16),
            KVCache(),
        )
        repeated = torch.cat([x, x], dim=1)
        with torch.no_grad():
            attend(repeated[:, :9], cache=cache)
            later = attend(repeated[:, 9:], cache=cache)
        assert_close(later[:, 3:], attend(x)[:, 3:], rtol=0, atol=1e-6)


def test_masks_of_every_form_agree():
    attend, x = module(), vectors(2, 6, 16)
    lengths = torch.tensor([6, 4])
    kept = torch.arange(6) < lengths[:, None]
    whole = attend(x, key_mask=kept)
    assert_close(attend(x, mask=masks.padding(lengths)), whole, rtol=0, atol=1e-12)
    assert_close(attend(x, mask=kept[:, None, None]), whole, rtol=0, atol=1e-12)
    assert_close(attend(x, bias=kept[:, None, None].double().log()), whole, rtol=0, atol=1e-12)
    causal = module(causal=True)(x, mask=masks.padding(lengths))
    assert_close(attend(x, mask=masks.causal() & masks.padding(lengths)), causal, rtol=0, atol=1e-12)


def test_extra_keys_are_seen_under_every_mask_and_come_last():
    attend = module(add_bias_kv=True, add_zero_attn=True, causal=True)
    x, nothing = vectors(2, 5, 16), torch.zeros(5, 5, dtype=torch.bool)
    for hidden in (nothing, nothing[:, :1], masks.window(0, 0) & ~masks.window(0, 0)):
        weights = attend(x, mask=hidden, return_weights=True).weights
        assert not weights[..., :5].any()
        assert weights[..., 5:].min() > 0
    weights = attend(x, key_mask=torch.zeros(2, 5, dtype=torch.bool), return_weights=True).weights
    assert not weights[..., :5].any()
    assert attend(x, bias=vectors(5, 5), return_weights=True).weights.shape == (2, 4, 5, 7)


def test_a_row_that_sees_nothing_gives_the_output_bias_and_finite_gradients():
    attend, x = module().train(), vectors(2, 4, 16).requires_grad_()
    mask = torch.ones(2, 1, 4, 4, dtype=torch.bool)
    mask[0, :, 2] = False
    out = attend(x, mask=mask)
    assert_close(out[0, 2], attend.output.bias, rtol=0, atol=0)
    out.sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in attend.parameters())
    assert x.grad.isfinite().all()


@each_option
def test_gradients_are_those_of_finite_differences(options):
    attend = module(causal=True, **options).train()
    x = vectors(1, 4, 16).requires_grad_()
    assert torch.autograd.gradcheck(attend, (x,), fast_mode=True)


def test_dropout_acts_in_training_only_and_leaves_the_weights_whole():
    attend, x = module(dropout=0.5, output_dropout=0.25), vectors(2, 6, 16)
    assert torch.equal(attend(x), attend(x))
    attend.train()
    torch.manual_seed(1)
    got = attend(x, return_weights=True)
    assert_close(got.weights.sum(-1), torch.ones(2, 4, 6, dtype=torch.float64), rtol=0, atol=1e-12)
    assert 0.1 < (got.output == 0).double().mean() < 0.4  # output dropout
    assert not torch.equal(attend(x), attend(x))


def test_dropout_keeps_the_mean():
    attend, x = module(dropout=0.3), vectors(1, 4, 16)
    expected = attend(x)
    attend.train()
    torch.manual_seed(0)
    mean = attend(x.expand(20_000, -1, -1)).mean(0, keepdim=True)
    assert_close(mean, expected, rtol=0, atol=0.02)  # five standard errors


def test_length_first_is_a_transpose():
    one, other, x = module(), module(batch_first=False), vectors(2, 5, 16)
    other.load_state_dict(one.state_dict())
    memory = vectors(2, 3, 16)
    assert_close(other(x.transpose(0, 1)), one(x).transpose(0, 1), rtol=0, atol=0)
    crossed = other(x.transpose(0, 1), memory.transpose(0, 1), return_weights=True)
    assert_close(crossed.output, one(x, memory).transpose(0, 1), rtol=0, atol=1e-12)
    assert crossed.weights.shape == (2, 4, 5, 3)


def test_the_same_tensor_three_times_is_self_attention():
    attend, x = module(positions=RotaryPositions(4), causal=True), vectors(2, 5, 16)
    assert torch.equal(attend(x, x, x), attend(x))
    assert torch.equal(attend(x, None, x), attend(x))


def test_empty_batches_and_sequences_keep_their_shape():
    attend = module()
    assert attend(vectors(0, 5, 16)).shape == (0, 5, 16)
    assert attend(vectors(2, 0, 16)).shape == (2, 0, 16)
    nothing = attend(vectors(2, 3, 16), vectors(2, 0, 16))
    assert_close(nothing, attend.output.bias.expand(2, 3, 16), rtol=0, atol=0)


def test_half_precision_and_autocast_stay_close():
    attend, x = module(qk_norm="layer", positions=RotaryPositions(4)), vectors(2, 5, 16)
    expected = attend(x)
    assert_close(attend.bfloat16()(x.bfloat16()).double(), expected, rtol=0, atol=0.03)
    with torch.autocast("cpu", torch.bfloat16):
        assert_close(attend.float()(x.float()).double(), expected, rtol=0, atol=0.03)


def test_initialisation_is_xavier_and_zero():
    torch.manual_seed(0)
    attend = MultiHeadAttention(128, 4, d_v=16)
    bound = math.sqrt(6 / (128 + 64))
    assert attend.output.weight.abs().max() <= bound
    assert attend.output.weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.03)
    assert not attend.output.bias.any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dropout": 1.5}, r"dropout must lie in \[0, 1\]; got 1\.5"),
        ({"output_dropout": float("nan")}, r"output_dropout must lie in \[0, 1\]; got nan"),
        ({"window": (-1, 0)}, r"window must .*got \(-1, 0\)"),
        ({"qk_norm": "batch"}, "norm must be 'layer' or 'rms'; got 'batch'"),
        ({"add_zero_attn": True, "window": (1, 1)}, "a key without a position; got a window or positions"),
        ({"num_kv_heads": 3}, "num_kv_heads must divide num_heads"),
    ],
)
def test_impossible_modules_are_refused(options, message):
    with pytest.raises(InvalidArgument, match=message):
        MultiHeadAttention(16, 4, **options)


def test_inputs_that_do_not_fit_are_refused():
    attend = module(d_key_input=5)
    with pytest.raises(
        InvalidArgument, match=r"query must be \(batch, length, 16\); got \(3, 16\)\. Add a batch"
    ):
        attend(vectors(3, 16))
    with pytest.raises(InvalidArgument, match=r"key must be \(batch, length, 5\); got \(1, 3, 16\)"):
        attend(vectors(1, 3, 16))
    with pytest.raises(InvalidArgument, match=r"value must be \(batch, length, 16\); got \(1, 3, 5\)"):
        attend(vectors(1, 3, 16), vectors(1, 3, 5))
    with pytest.raises(InvalidArgument, match=r"query must be \(length, batch, 16\); got \(3, 1, 4\)"):
        module(batch_first=False)(vectors(3, 1, 4))
    with pytest.raises(InvalidArgument, match=r"mask must be boolean, True = may attend; got torch\.float64"):
        module()(vectors(1, 3, 16), mask=vectors(3, 3))
    with pytest.raises(InvalidArgument, match="positions act inside self-attention only"):
        module(positions=RotaryPositions(4))(vectors(1, 3, 16), vectors(1, 4, 16))


def test_overflow_of_a_static_cache_is_refused():
    attend, cache = module(causal=True), KVCache(capacity=3)
    with torch.no_grad():
        attend(vectors(1, 3, 16), cache=cache)
        with pytest.raises(InvalidArgument, match=r"at most capacity=3 tokens; got 3 \+ 1"):
            attend(vectors(1, 1, 16), cache=cache)
