"""Additive attention equals a loop over every pair, and masks as all others do."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from regard import masks
from regard.attend.additive import additive_attention
from regard.errors import InvalidArgument


def loop(query: Tensor, key: Tensor, value: Tensor, weight: Tensor, allowed: Tensor) -> Tensor:
    """One item, one head, pair by pair."""
    output = torch.zeros(len(query), value.shape[1], dtype=query.dtype)
    for i in range(len(query)):
        seen = [j for j in range(len(key)) if allowed[i, j]]
        if seen:
            scores = torch.stack([weight @ torch.tanh(query[i] + key[j]) for j in seen])
            output[i] = scores.softmax(0) @ value[seen]
    return output


def tensors(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    shapes = (2, 4, 5, 3), (2, 2, 7, 3), (2, 2, 7, 6), (4, 3)
    query, key, value, weight = (torch.randn(shape, dtype=dtype).requires_grad_() for shape in shapes)
    return query, key, value, weight


@pytest.mark.parametrize("causal", [False, True])
def test_it_equals_a_loop_over_every_pair_under_every_mask_at_once(causal: bool) -> None:
    query, key, value, weight = tensors()
    key_mask = torch.rand(2, 7) < 0.7
    found = additive_attention(
        query,
        key,
        value,
        weight,
        mask=masks.window(3, 2),
        key_mask=key_mask,
        causal=causal,
        return_weights=True,
    )
    rule = masks.window(3, 2) & masks.causal() if causal else masks.window(3, 2)
    allowed = rule.full((5, 7)) & key_mask[:, None]
    for item in range(2):
        for head in range(4):
            kept = key[item, head // 2], value[item, head // 2]
            truth = loop(query[item, head], *kept, weight[head], allowed[item])
            torch.testing.assert_close(found.output[item, head], truth)
    sums = found.weights.sum(-1)
    assert ((sums - 1).abs() < 1e-12).logical_or(sums == 0).all()
    assert (found.weights[~allowed[:, None].expand_as(found.weights)] == 0).all()


def test_gradients_of_first_and_second_order_are_right() -> None:
    query, key, value, weight = (x[..., :1, :] if x.ndim == 2 else x[:1, :1, :3] for x in tensors())
    inputs = tuple(x.detach().requires_grad_() for x in (query, key, value, weight))
    assert torch.autograd.gradcheck(lambda *x: additive_attention(*x, causal=True), inputs)
    assert torch.autograd.gradgradcheck(lambda *x: additive_attention(*x, causal=True), inputs)


def test_rows_that_see_nothing_have_output_0_and_harm_no_gradient() -> None:
    query, key, value, weight = tensors(torch.float32)
    found = additive_attention(
        query, key, value, weight, key_mask=torch.zeros(2, 7).bool(), return_weights=True, return_lse=True
    )
    assert (found.output == 0).all()
    assert (found.weights == 0).all()
    assert (found.lse == -math.inf).all()
    for grad in torch.autograd.grad(found.output.sum(), (query, key, value, weight)):
        assert (grad == 0).all()


def test_what_padding_hides_is_never_touched() -> None:
    query, key, value, weight = (x.detach() for x in tensors(torch.float32))
    key_mask = torch.arange(7) < torch.tensor([[7], [4]])
    clean = additive_attention(query, key, value, weight, key_mask=key_mask)
    key[1, :, 4:], value[1, :, 4:] = math.nan, math.inf
    key.requires_grad_()
    dirty = additive_attention(query, key, value, weight, key_mask=key_mask)
    assert torch.equal(clean, dirty)
    assert torch.autograd.grad(dirty.sum(), key)[0].isfinite().all()


def test_asking_for_weights_changes_nothing() -> None:
    query, key, value, weight = tensors(torch.float32)
    plain = additive_attention(query, key, value, weight[0])
    assert torch.equal(plain, additive_attention(query, key, value, weight[0], return_weights=True).output)


def test_bfloat16_is_computed_in_float32_and_rounded_once() -> None:
    query, key, value, weight = (x.detach().bfloat16() for x in tensors())
    wide = additive_attention(query.float(), key.float(), value.float(), weight.float())
    assert torch.equal(additive_attention(query, key, value, weight), wide.bfloat16())


@pytest.mark.parametrize("shape", [(0, 2, 4, 4), (2, 2, 0, 4), (2, 2, 4, 0), (1, 1, 1, 1)])
def test_empty_and_single_inputs_keep_their_shape(shape: tuple[int, ...]) -> None:
    x = torch.randn(shape)
    assert additive_attention(x, x, x, torch.randn(shape[-1]), causal=True).shape == shape


def test_what_cannot_be_right_is_refused_with_the_remedy() -> None:
    query, key, value, weight = tensors()
    with pytest.raises(
        InvalidArgument, match=r"weight must have the shape \(channels,\) = \(3,\) or \(heads"
    ):
        additive_attention(query, key, value, weight[:2])
    with pytest.raises(InvalidArgument, match="mask must be boolean"):
        additive_attention(query, key, value, weight, mask=torch.ones(5, 7))
