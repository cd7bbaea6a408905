"""Linear attention equals its own O(n²) form, in one piece and step by step."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard.attend.linear import LinearState, elu_plus_one, linear_attention
from regard.errors import InvalidArgument


def twin(
    query: Tensor, key: Tensor, value: Tensor, *, causal: bool = False, key_mask: Tensor | None = None
) -> Tensor:
    """All weights φ(q)·φ(k), masked, divided by their sum, in float64."""
    query, key, value = query.double(), key.double(), value.double()
    group = query.shape[1] // max(key.shape[1], 1)
    key, value = key.repeat_interleave(group, 1), value.repeat_interleave(group, 1)
    weights = elu_plus_one(query) @ elu_plus_one(key).mT
    if causal:
        weights = weights.tril(key.shape[2] - query.shape[2])
    if key_mask is not None:
        weights = weights * key_mask[:, None, None]
    total = weights.sum(-1, keepdim=True)
    return weights / torch.where(total == 0, 1, total) @ value


def tensors(
    b: int, h: int, g: int, q: int, k: int, d: int, dv: int, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    shapes = (b, h, q, d), (b, g, k, d), (b, g, k, dv)
    query, key, value = (torch.randn(shape, dtype=dtype).requires_grad_() for shape in shapes)
    return query, key, value


@settings(max_examples=30, deadline=None)
@given(
    lengths=st.tuples(st.integers(0, 150), st.integers(0, 150)),
    causal=st.booleans(),
    padded=st.booleans(),
    heads=st.sampled_from([(1, 1), (4, 2), (3, 1)]),
    channels=st.sampled_from([(4, 4), (3, 5), (6, 2)]),
)
def test_linear_attention_equals_its_quadratic_form_and_so_do_its_gradients(
    lengths: tuple[int, int], causal: bool, padded: bool, heads: tuple[int, int], channels: tuple[int, int]
) -> None:
    query, key, value = tensors(2, *heads, *lengths, *channels)
    key_mask = torch.rand(2, lengths[1]) < 0.7 if padded else None
    ours = linear_attention(query, key, value, causal=causal, key_mask=key_mask)
    truth = twin(query, key, value, causal=causal, key_mask=key_mask)
    torch.testing.assert_close(ours, truth, atol=1e-11, rtol=0)
    if 0 in lengths:
        return
    inputs, seed = (query, key, value), torch.randn_like(ours)
    for mine, true in zip(
        torch.autograd.grad(ours, inputs, seed), torch.autograd.grad(truth, inputs, seed), strict=True
    ):
        torch.testing.assert_close(mine, true, atol=1e-10, rtol=0)


def test_gradients_of_first_and_second_order_are_right() -> None:
    inputs = tensors(1, 2, 1, 5, 6, 2, 1)
    key_mask = torch.tensor([[False, False, True, True, True, False]])

    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return linear_attention(query, key, value, causal=True, key_mask=key_mask)

    assert torch.autograd.gradcheck(attend, inputs)
    assert torch.autograd.gradgradcheck(attend, inputs)


def test_float32_stays_within_1e_5_of_the_quadratic_form_on_long_sequences() -> None:
    query, key, value = tensors(1, 2, 2, 2000, 2000, 16, 16, dtype=torch.float32)
    assert (
        linear_attention(query, key, value, causal=True) - twin(query, key, value, causal=True)
    ).abs().max() < 1e-5


def test_step_by_step_equals_all_at_once_at_every_step() -> None:
    query, key, value = tensors(2, 4, 2, 20, 20, 4, 3)
    whole = linear_attention(query, key, value, causal=True)
    prefix, state = linear_attention(
        query[:, :, :7], key[:, :, :7], value[:, :, :7], causal=True, return_state=True
    )
    torch.testing.assert_close(prefix, whole[:, :, :7])
    for t in range(7, 20):
        one = slice(t, t + 1)
        step, state = linear_attention(
            query[:, :, one], key[:, :, one], value[:, :, one], causal=True, state=state, return_state=True
        )
        torch.testing.assert_close(step, whole[:, :, one])


def test_states_of_two_halves_add_up() -> None:
    query, key, value = tensors(1, 2, 2, 6, 10, 4, 3)
    _, left = linear_attention(query, key[:, :, :4], value[:, :, :4], return_state=True)
    _, right = linear_attention(query, key[:, :, 4:], value[:, :, 4:], return_state=True)
    nothing = key[:, :, :0], value[:, :, :0]
    merged = linear_attention(query, *nothing, state=left + right)
    torch.testing.assert_close(merged, linear_attention(query, key, value))


def test_the_future_changes_nothing_to_the_last_bit() -> None:
    query, key, value = (x.detach() for x in tensors(1, 2, 2, 300, 300, 8, 8, dtype=torch.float32))
    before = linear_attention(query, key, value, causal=True)
    key[:, :, 150:] = torch.randn(150, 8)
    value[:, :, 150:] = torch.randn(150, 8)
    assert torch.equal(before[:, :, :150], linear_attention(query, key, value, causal=True)[:, :, :150])


@pytest.mark.parametrize("causal", [False, True])
def test_padding_is_in_neither_sum_and_never_touched(causal: bool) -> None:
    query, key, value = (x.detach() for x in tensors(2, 2, 2, 50, 50, 4, 4, dtype=torch.float32))
    key_mask = torch.arange(50) < torch.tensor([[50], [31]])
    clean = linear_attention(query, key, value, key_mask=key_mask, causal=causal)
    alone = linear_attention(query[1:, :, :31], key[1:, :, :31], value[1:, :, :31], causal=causal)
    torch.testing.assert_close(clean[1:, :, :31], alone)
    key[1, :, 31:], value[1, :, 31:] = math.nan, math.inf
    key.requires_grad_()
    dirty = linear_attention(query, key, value, key_mask=key_mask, causal=causal)
    assert torch.equal(clean, dirty)
    assert torch.autograd.grad(dirty.sum(), key)[0].isfinite().all()


def test_rows_that_see_nothing_are_0_and_harm_no_gradient() -> None:
    query, key, value = tensors(1, 2, 2, 10, 4, 4, 4, dtype=torch.float32)
    output = linear_attention(query, key, value, causal=True)
    assert (output[:, :, :6] == 0).all()
    assert all(grad.isfinite().all() for grad in torch.autograd.grad(output.sum(), (query, key, value)))


def test_any_feature_map_will_do() -> None:
    query, key, value = tensors(1, 2, 2, 30, 30, 4, 4)

    def squares(x: Tensor) -> Tensor:
        return torch.cat((x.square(), x.abs()), dim=-1)

    weights = (squares(query) @ squares(key).mT).tril()
    truth = weights / weights.sum(-1, keepdim=True) @ value
    torch.testing.assert_close(linear_attention(query, key, value, feature_map=squares, causal=True), truth)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_float32_and_rounded_once(dtype: torch.dtype) -> None:
    query, key, value = (x.detach() for x in tensors(1, 2, 2, 200, 200, 8, 8, dtype=dtype))
    ours = linear_attention(query, key, value, causal=True)
    truth = twin(query, key, value, causal=True)
    assert ours.dtype == dtype
    assert (ours - truth).abs().max() <= torch.finfo(dtype).eps * truth.abs().max()


@pytest.mark.parametrize("shape", [(0, 2, 4, 4), (2, 0, 4, 4), (2, 2, 0, 4), (2, 2, 4, 0), (1, 1, 1, 1)])
@pytest.mark.parametrize("causal", [False, True])
def test_empty_and_single_inputs_keep_their_shape(shape: tuple[int, ...], causal: bool) -> None:
    x = torch.randn(shape, requires_grad=True)
    output, state = linear_attention(x, x, x, causal=causal, return_state=True)
    assert output.shape == shape
    assert state.products.shape == (*shape[:2], shape[3], shape[3])
    assert torch.autograd.grad(output.sum(), x)[0].shape == shape


def test_it_compiles_in_one_graph_and_maps() -> None:
    inputs = tensors(1, 2, 2, 70, 70, 4, 4)
    compiled = torch.compile(linear_attention, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(*inputs, causal=True), linear_attention(*inputs, causal=True))
    stacked = [torch.stack((x, x)) for x in inputs]
    mapped = torch.func.vmap(lambda q, k, v: linear_attention(q, k, v, causal=True))(*stacked)
    torch.testing.assert_close(mapped[1], linear_attention(*inputs, causal=True))


def test_what_cannot_be_right_is_refused_with_the_remedy() -> None:
    x = torch.randn(1, 2, 4, 3)
    with pytest.raises(InvalidArgument, match="feature_map must change the number of channels only"):
        linear_attention(x, x, x, feature_map=lambda x: x[:, :1])
    state = LinearState(torch.zeros(1, 2, 3, 4), torch.zeros(1, 2, 3))
    with pytest.raises(InvalidArgument, match=r"state must have sums of the shapes \(1, 2, 3, 3\)"):
        linear_attention(x, x, x, state=state)
    with pytest.raises(InvalidArgument, match="key_mask must be a boolean tensor"):
        linear_attention(x, x, x, key_mask=torch.ones(1, 4))
