"""Positions: equal to the formula in float64, right at the edges, and what real models compute."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard.attend import positions as P
from regard.errors import InvalidArgument


@pytest.mark.parametrize("d_model", [1, 2, 5, 6, 7, 64])
def test_sinusoids_equal_the_formula_for_odd_and_even_sizes(d_model: int) -> None:
    table = P.sinusoidal(torch.arange(300), d_model)
    assert table.shape == (300, d_model)
    for p in (0, 1, 17, 299):
        for i in range(d_model):
            angle = p / 10000 ** (2 * (i // 2) / d_model)  # sine and cosine of a pair share one exponent
            expected = math.cos(angle) if i % 2 else math.sin(angle)
            assert abs(table[p, i].item() - expected) < 1e-6


def test_sinusoids_far_away_are_as_exact_as_near() -> None:
    far = P.sinusoidal(torch.tensor([1_000_000]), 8)
    assert abs(far[0, 0].item() - math.sin(1_000_000)) < 1e-6
    assert abs(far[0, 2].item() - math.sin(1_000_000 / 10000 ** (2 / 8))) < 1e-6


def test_half_precision_sinusoids_tell_neighbours_apart() -> None:
    pair = P.sinusoidal(torch.tensor([256, 257]), 16, dtype=torch.bfloat16)
    assert pair.dtype == torch.bfloat16
    assert not torch.equal(pair[0], pair[1])


def by_formula(x: Tensor, layout: str, base: float = 10000.0, start: int = 0) -> Tensor:
    """Rotary positions with complex numbers, in float64."""
    n, d = x.shape[-2:]
    pairs = (
        x.double().unflatten(-1, (2, d // 2)).mT if layout == "half" else x.double().unflatten(-1, (-1, 2))
    )
    theta = base ** (-torch.arange(0, d, 2).double() / d)
    angle = torch.arange(start, start + n).double()[:, None] * theta
    turned = torch.view_as_real(
        torch.view_as_complex(pairs.contiguous()) * torch.polar(torch.ones(()).double(), angle)
    )
    return (turned.mT if layout == "half" else turned).flatten(-2)


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_rotary_equals_a_product_of_complex_numbers(layout: str) -> None:
    x = torch.randn(2, 3, 50, 12)
    torch.testing.assert_close(
        P.rotary(x, 7, layout=layout).double(), by_formula(x, layout, start=7), atol=2e-6, rtol=0
    )


def test_rotary_layouts_differ_and_are_converted_into_each_other() -> None:
    x = torch.randn(5, 8)
    interleaved, half = P.rotary(x, 3, layout="interleaved"), P.rotary(x, 3, layout="half")
    assert not torch.allclose(interleaved, half)
    through = P.half_to_interleaved(P.rotary(P.interleaved_to_half(x), 3, layout="half"))
    torch.testing.assert_close(through, interleaved)
    assert torch.equal(P.half_to_interleaved(P.interleaved_to_half(x)), x)
    assert P.interleaved_to_half(torch.arange(6)).tolist() == [0, 2, 4, 1, 3, 5]
    assert P.half_to_interleaved(torch.arange(6)).tolist() == [0, 3, 1, 4, 2, 5]
    assert torch.equal(P.interleaved_to_half(x.T, dim=0), P.interleaved_to_half(x).T)


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_rotary_products_depend_on_the_distance_alone(layout: str) -> None:
    q, k = torch.randn(2, 1, 16, dtype=torch.float64)
    near = P.rotary(q, 5, layout=layout) @ P.rotary(k, 2, layout=layout).T
    far = P.rotary(q, 100_005, layout=layout) @ P.rotary(k, 100_002, layout=layout).T
    torch.testing.assert_close(near, far, atol=1e-9, rtol=0)


def test_rotary_takes_positions_one_by_one_and_per_item() -> None:
    x = torch.randn(2, 3, 4, 8)
    positions = torch.tensor([[0, 1, 2, 3], [10, 11, 12, 13]])
    turned = P.rotary(x, positions[:, None])
    torch.testing.assert_close(turned[0], P.rotary(x[0]))
    torch.testing.assert_close(turned[1], P.rotary(x[1], 10))


def test_partial_rotary_leaves_the_other_channels_alone() -> None:
    x = torch.randn(4, 10)
    turned = P.rotary(x, 1, channels=6)
    assert torch.equal(turned[:, 6:], x[:, 6:])
    torch.testing.assert_close(turned[:, :6], P.rotary(x[:, :6], 1))


def test_rotary_in_bfloat16_rounds_once() -> None:
    x = torch.randn(3, 8).bfloat16()
    assert torch.equal(P.rotary(x, 256), P.rotary(x.float(), 256).bfloat16())


def test_rotary_of_nothing_is_nothing() -> None:
    assert P.rotary(torch.randn(2, 0, 8)).shape == (2, 0, 8)
    assert P.rotary(torch.randn(2, 3, 0)).shape == (2, 3, 0)


def test_rotary_is_differentiable_twice_and_compiles_in_one_graph() -> None:
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(P.rotary, (x, 2))
    assert torch.autograd.gradgradcheck(P.rotary, (x, 2))
    compiled = torch.compile(P.rotary, fullgraph=True, backend="eager")
    assert torch.equal(compiled(x, 2), P.rotary(x, 2))


def test_linear_scaling_squeezes_positions() -> None:
    x = torch.randn(1, 8)
    torch.testing.assert_close(P.rotary(x, 12, scaling=P.Linear(4.0)), P.rotary(x, 3))


def test_ntk_scaling_slows_the_slowest_pair_by_the_factor_and_keeps_the_fastest() -> None:
    plain = P.NTK(1.0).frequencies(64, 10000.0)
    scaled = P.NTK(8.0).frequencies(64, 10000.0)
    assert scaled[0] == plain[0]
    torch.testing.assert_close(scaled[-1], plain[-1] / 8)
    assert P.NTK(8.0).frequencies(2, 10000.0).tolist() == [1.0]


@pytest.mark.parametrize("factor", [1.0, 4.0, 40.0])
@pytest.mark.parametrize("head_dim", [16, 64, 128])
def test_yarn_equals_what_models_trained_with_it_use(factor: float, head_dim: int) -> None:
    rope = pytest.importorskip("transformers.modeling_rope_utils")
    from transformers import LlamaConfig

    parameters = {
        "rope_type": "yarn",
        "factor": factor,
        "rope_theta": 10000.0,
        "original_max_position_embeddings": 4096,
    }
    config = LlamaConfig(
        hidden_size=head_dim * 2,
        num_attention_heads=2,
        head_dim=head_dim,
        max_position_embeddings=int(4096 * factor),
        rope_parameters=parameters,
    )
    theirs, gain = rope.ROPE_INIT_FUNCTIONS["yarn"](config, "cpu")
    ours = P.YaRN(factor, 4096)
    torch.testing.assert_close(ours.frequencies(head_dim, 10000.0).float(), theirs, rtol=1e-5, atol=0)
    assert ours.gain == pytest.approx(gain)
    cos, _ = P.rotary_table(torch.tensor([0]), head_dim, scaling=ours)
    assert cos[0, 0].item() == pytest.approx(gain)


@settings(max_examples=30, deadline=None)
@given(heads=st.integers(1, 40))
def test_alibi_has_one_positive_slope_for_each_head(heads: int) -> None:
    slopes = P.alibi_slopes(heads)
    assert slopes.shape == (heads,)
    assert (slopes > 0).all()
    assert len(set(slopes.tolist())) == heads


def test_alibi_slopes_are_the_papers() -> None:
    assert P.alibi_slopes(8).tolist() == [2.0**-h for h in range(1, 9)]
    assert P.alibi_slopes(1).tolist() == [2.0**-8]
    twelve = P.alibi_slopes(12)
    assert twelve[:8].tolist() == [2.0**-h for h in range(1, 9)]
    torch.testing.assert_close(twelve[8:], torch.tensor([2.0**-e for e in (0.5, 1.5, 2.5, 3.5)]))


def test_alibi_penalises_distance_with_the_last_query_on_the_last_key() -> None:
    bias = P.alibi_bias(8, 2, 4)
    assert bias[0].tolist() == [[-1.0, -0.5, 0.0, -0.5], [-1.5, -1.0, -0.5, 0.0]]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (16, 64), (8, 20), (64, 1000)])
def test_relative_buckets_are_those_of_t5(causal: bool, buckets: int, max_distance: int) -> None:
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5")
    ahead = torch.arange(-2000, 2001)
    theirs = t5.T5Attention._relative_position_bucket(ahead, not causal, buckets, max_distance)
    assert torch.equal(P.bucket_of(ahead, causal=causal, buckets=buckets, max_distance=max_distance), theirs)


def test_relative_buckets_put_the_last_query_on_the_last_key() -> None:
    whole = P.relative_buckets(6, 6, causal=True)
    assert torch.equal(P.relative_buckets(2, 6, causal=True), whole[-2:])
    assert whole[0].tolist() == [0] * 6  # the future has bucket 0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: P.rotary(torch.randn(2, 5)), "channels must be an even number, turned in pairs; got 5"),
        (
            lambda: P.rotary(torch.randn(2, 4), layout="gptj"),
            "layout must be 'half' or 'interleaved'; got 'gptj'",
        ),
        (
            lambda: P.rotary(torch.randn(2, 4), torch.randn(2)),
            "positions must be whole numbers; got torch.float32",
        ),
        (
            lambda: P.rotary(torch.randn(2, 4), torch.arange(3)),
            "one number for each of the 2 vectors; got the shape",
        ),
        (lambda: P.rotary(torch.randn(2, 4), channels=6), "at most the 4 channels of x can be turned; got 6"),
        (lambda: P.Linear(0.5), "factor must be a finite number ≥ 1"),
        (lambda: P.YaRN(2.0, 0), "original_length must be a number of positions ≥ 1; got 0"),
        (lambda: P.YaRN(2.0, 10, fast=1.0), "fast must be more turns than slow"),
        (lambda: P.alibi_slopes(0), "heads must be a number ≥ 1; got 0"),
        (lambda: P.sinusoidal(torch.arange(3), -1), "d_model must be a number of channels ≥ 0; got -1"),
        (lambda: P.sinusoidal(torch.arange(3), 4, base=1.0), "base must be greater than 1; got 1.0"),
        (lambda: P.relative_buckets(2, 2, buckets=3), "buckets must be even and ≥ 4; got 3"),
        (
            lambda: P.relative_buckets(2, 2, max_distance=8),
            "max_distance must be greater than the 8 distances",
        ),
        (lambda: P.interleaved_to_half(torch.randn(3)), "channels must be an even number"),
    ],
)
def test_what_cannot_be_right_is_refused_with_the_remedy(wrong: object, message: str) -> None:
    with pytest.raises(InvalidArgument) as error:
        wrong()  # type: ignore[operator]
    assert message in str(error.value)
