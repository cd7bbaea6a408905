"""Gradients of any order, in reverse and forward mode, and under the transforms of torch.func."""

from __future__ import annotations

import math

import pytest
import torch
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.testing import assert_close

import regard
from regard import masks

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")

ASKED = {
    "plain": {},
    "causal": {"causal": True},
    "padded": {"key_mask": torch.tensor([[True, False, True, True], [False] * 4])},
    "causal and padded": {"key_mask": torch.tensor([[False, False, True, True]] * 2), "causal": True},
    "window": {"window": (1, 0)},
    "rule": {"mask": masks.causal() | masks.prefix(2)},
    "bias": {"bias": torch.linspace(-1, 1, 16, dtype=torch.float64).reshape(4, 4)},
    "temperature": {"temperature": 0.6},
    "infinite temperature": {"temperature": math.inf},
    "softcap": {"softcap": 1.5},
}


def three(group=2, length=4, value_channels=2):
    generator = torch.Generator().manual_seed(0)
    shapes = [(2, 2 * group, length, 3), (2, 2, length, 3), (2, 2, length, value_channels)]
    return [torch.randn(x, generator=generator, dtype=torch.float64).requires_grad_() for x in shapes]


def all_results(asked):
    def compute(query, key, value):
        got = regard.attention(query, key, value, **asked, return_weights=True, return_lse=True)
        return got.output, got.weights, got.lse.masked_fill(got.lse == -math.inf, 0)

    return compute


@pytest.mark.parametrize("name", ASKED)
def test_gradients_of_output_weights_and_lse_are_right(name):
    assert gradcheck(all_results(ASKED[name]), three(), fast_mode=True)


@pytest.mark.parametrize("name", ASKED)
def test_second_derivatives_are_right(name):
    assert gradgradcheck(all_results(ASKED[name]), three(), fast_mode=True)


def test_the_bias_has_a_gradient():
    bias = torch.randn(4, 4, dtype=torch.float64).requires_grad_()

    def compute(bias):
        return regard.attention(*(x.detach() for x in three()), bias=bias, causal=True)

    assert gradcheck(compute, (bias,))
    assert gradgradcheck(compute, (bias,))


def test_only_what_wants_a_gradient_gets_one():
    query, key, value = three()
    regard.attention(query.detach(), key.detach(), value).sum().backward()
    assert value.grad is not None
    output = regard.attention(query.detach(), key.detach(), value.detach(), return_lse=True)
    assert not output.output.requires_grad
    assert not output.lse.requires_grad


@pytest.mark.parametrize("name", ASKED)
def test_forward_mode_agrees_with_reverse_mode(name):
    tensors = three()
    directions = [torch.randn_like(x) for x in tensors]
    compute = all_results(ASKED[name])
    with forward_ad.dual_level():
        duals = [forward_ad.make_dual(x, d) for x, d in zip(tensors, directions, strict=True)]
        tangents = [forward_ad.unpack_dual(x).tangent for x in compute(*duals)]
    for result, tangent in zip(compute(*tensors), tangents, strict=True):
        if tangent is None:  # a constant
            continue
        seed = torch.randn_like(result)
        grads = torch.autograd.grad(result, tensors, seed, retain_graph=True, allow_unused=True)
        reverse = sum((g * d).sum() for g, d in zip(grads, directions, strict=True) if g is not None)
        assert_close((tangent * seed).sum(), torch.as_tensor(reverse, dtype=torch.float64))


@pytest.mark.parametrize("name", ["plain", "causal", "window", "rule", "softcap", "temperature"])
def test_vmap_and_grad_of_torch_func_give_the_same(name):
    query, key, value = (x.detach() for x in three())
    many = torch.stack([query, 2 * query, -query])
    asked = ASKED[name]
    one_by_one = torch.stack([regard.attention(x, key, value, **asked) for x in many])
    assert_close(torch.func.vmap(lambda x: regard.attention(x, key, value, **asked))(many), one_by_one)
    grad = torch.func.grad(lambda x: regard.attention(x, key, value, **asked).square().sum())(query)
    leaf = query.clone().requires_grad_()
    regard.attention(leaf, key, value, **asked).square().sum().backward()
    assert_close(grad, leaf.grad)


def test_dropout_drops_in_training_alone_and_never_from_the_weights():
    query, key, value = (x.detach() for x in three(group=1, length=40))
    plain = regard.attention(query, key, value)
    assert torch.equal(regard.attention(query, key, value, dropout_p=0.5), plain)
    assert torch.equal(regard.attention(query, key, value, dropout_p=0.0, training=True), plain)
    asked = {"dropout_p": 0.25, "training": True, "causal": True, "return_weights": True, "return_lse": True}
    torch.manual_seed(1)
    got = regard.attention(query, key, value, **asked)
    undropped = regard.attention(query, key, value, causal=True, return_weights=True, return_lse=True)
    assert_close(got.weights, undropped.weights)
    assert_close(got.lse, undropped.lse)
    assert not torch.allclose(got.output, undropped.output)
    mean = sum(regard.attention(query, key, value, **asked).output for _ in range(100)) / 100
    assert (mean - undropped.output).abs().mean() < 0.1
    assert not regard.attention(query, key, value, dropout_p=1.0, training=True).any()
