"""Output and weights together: what the formula gives, with gradients of any order, cut into parts or not."""

from __future__ import annotations

import math

import pytest
import torch
from torch.testing import assert_close

from regard.attend import weighted as module
from regard.attend.reference import reference_attention
from regard.attend.weighted import weighted


def tensors(groups: int, n: int = 7, dtype: torch.dtype = torch.float64) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(groups)
    shapes = ((2, 4, n, 3), (2, groups, n, 3), (2, groups, n, 5))
    return [torch.randn(*shape, generator=generator, dtype=dtype).requires_grad_() for shape in shapes]


HIDDEN = torch.where(torch.arange(7)[:, None] % 3 == torch.arange(7) % 2, -math.inf, 0.0).double()
HIDDEN[4] = -math.inf  # a row that sees nothing
CASES = {"plain": (None, False), "causal": (None, True), "bias": (HIDDEN[None, None], False)}


@pytest.fixture(params=[1 << 18, 20], ids=["one part", "many parts"])
def _parts(request, monkeypatch):
    monkeypatch.setattr(module, "AT_ONCE", request.param)


@pytest.mark.usefixtures("_parts")
@pytest.mark.parametrize(("bias", "causal"), CASES.values(), ids=CASES.keys())
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_output_weights_and_gradients_are_the_formulas(bias, causal, groups):
    inputs = tensors(groups)
    expected = reference_attention(*inputs, bias=bias, causal=causal, scale=0.7)
    output, weights = weighted(*inputs, bias, causal, 0.7)
    assert_close(output, expected.output, rtol=0, atol=1e-12)
    assert_close(weights, expected.weights, rtol=0, atol=1e-12)
    with torch.no_grad():
        assert_close(weighted(*inputs, bias, causal, 0.7), (output, weights), rtol=0, atol=0)

    def both(*inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return weighted(*inputs, bias, causal, 0.7)

    assert torch.autograd.gradcheck(both, inputs, fast_mode=True)
    assert torch.autograd.gradgradcheck(both, inputs, fast_mode=True)


@pytest.mark.parametrize("used", [0, 1])
def test_either_result_may_go_without_a_gradient(used):
    inputs = tensors(4)
    expected = reference_attention(*inputs, scale=0.7)
    got = torch.autograd.grad(weighted(*inputs, None, False, 0.7)[used].sin().sum(), inputs)
    wanted = torch.autograd.grad(
        (expected.output, expected.weights)[used].sin().sum(),
        inputs,
        allow_unused=True,
        materialize_grads=True,
    )
    assert_close(got, wanted, rtol=0, atol=1e-12)


def test_half_precision_is_rounded_once_at_the_end():
    inputs = [x.detach().bfloat16() for x in tensors(2, n=40)]
    expected = reference_attention(*(x.double() for x in inputs), causal=True)
    output, weights = weighted(*inputs, None, True, 3**-0.5)
    assert output.dtype == weights.dtype == torch.bfloat16
    assert_close(output.double(), expected.output, rtol=2**-8, atol=1e-6)
    assert_close(weights.double(), expected.weights, rtol=2**-8, atol=1e-6)
