"""FlashAttention's algorithm gives what the formula gives, whatever the tiles."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard.attend.online import online_softmax_attention, scores_of, tiles
from regard.attend.reference import reference_attention
from regard.errors import InvalidArgument


def tensors(
    b: int, h: int, g: int, q: int, k: int, d: int, dv: int, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    shapes = (b, h, q, d), (b, g, k, d), (b, g, k, dv)
    query, key, value = (torch.randn(shape, dtype=dtype).requires_grad_() for shape in shapes)
    return query, key, value


@settings(max_examples=30, deadline=None)
@given(
    lengths=st.tuples(st.integers(0, 60), st.integers(0, 60)),
    tile=st.sampled_from([1, 7, 16, 256]),
    causal=st.booleans(),
    padded=st.booleans(),
    heads=st.sampled_from([(1, 1), (4, 2), (3, 1)]),
    channels=st.sampled_from([(4, 4), (3, 5), (6, 2)]),
)
def test_any_tiles_give_the_formula_and_its_gradients(
    lengths: tuple[int, int],
    tile: int,
    causal: bool,
    padded: bool,
    heads: tuple[int, int],
    channels: tuple[int, int],
) -> None:
    query, key, value = tensors(2, *heads, *lengths, *channels)
    key_mask = torch.rand(2, lengths[1]) < 0.7 if padded else None
    ours = online_softmax_attention(
        query, key, value, causal=causal, key_mask=key_mask, tile=tile, return_lse=True
    )
    truth = reference_attention(query, key, value, causal=causal, key_mask=key_mask)
    torch.testing.assert_close(ours.output, truth.output, atol=1e-12, rtol=0)
    torch.testing.assert_close(ours.lse, truth.lse, atol=1e-12, rtol=0)
    if 0 in lengths:
        return
    inputs, seed = (query, key, value), torch.randn_like(ours.output)
    for mine, true in zip(
        torch.autograd.grad(ours.output, inputs, seed),
        torch.autograd.grad(truth.output, inputs, seed),
        strict=True,
    ):
        torch.testing.assert_close(mine, true, atol=1e-11, rtol=0)


def test_gradients_of_first_and_second_order_are_right_with_the_lse_among_the_outputs() -> None:
    inputs = tensors(1, 2, 1, 5, 6, 2, 1)
    key_mask = torch.tensor([[False, False, True, True, True, False]])

    def attend(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        found = online_softmax_attention(
            query, key, value, causal=True, key_mask=key_mask, tile=2, return_lse=True
        )
        return found.output, found.lse.masked_fill(found.lse == -math.inf, 0)

    assert torch.autograd.gradcheck(attend, inputs)
    assert torch.autograd.gradgradcheck(attend, inputs)


def test_float32_is_as_exact_as_the_fused_kernel() -> None:
    query, key, value = tensors(1, 2, 2, 1000, 1000, 64, 64, dtype=torch.float32)
    truth = reference_attention(query.double(), key.double(), value.double()).output
    assert (online_softmax_attention(query, key, value) - truth).abs().max() < 2e-6


def test_scores_of_any_size_stay_exact() -> None:
    query, key, value = tensors(1, 1, 1, 6, 40, 4, 4)
    for size in (1e-30, 1e3, 1e9):
        ours = online_softmax_attention(query * size, key, value, tile=7, return_lse=True)
        truth = reference_attention(query * size, key, value)
        torch.testing.assert_close(ours.output, truth.output, atol=1e-6, rtol=0)
        torch.testing.assert_close(ours.lse, truth.lse)


def test_a_score_overflowing_half_precision_is_finite() -> None:
    x = torch.full((1, 1, 4, 64), 200.0, dtype=torch.float16)  # products of 2,560,000
    assert online_softmax_attention(x, x, x).isfinite().all()


def test_rows_that_see_nothing_have_output_0_and_lse_minus_infinity_and_harm_no_gradient() -> None:
    query, key, value = tensors(2, 2, 2, 10, 4, 4, 4, dtype=torch.float32)
    key_mask = torch.tensor([[True] * 4, [False] * 4])
    found = online_softmax_attention(
        query, key, value, causal=True, key_mask=key_mask, tile=3, return_lse=True
    )
    assert (found.output[0, :, :6] == 0).all()
    assert (found.output[1] == 0).all()
    assert (found.lse[1] == -math.inf).all()
    for grad in torch.autograd.grad(found.output.sum(), (query, key, value)):
        assert grad.isfinite().all()
        assert (grad[1] == 0).all()


def test_what_padding_hides_is_never_touched_and_what_is_visible_is() -> None:
    query, key, value = (x.detach() for x in tensors(2, 2, 2, 50, 50, 4, 4, dtype=torch.float32))
    key_mask = torch.arange(50) < torch.tensor([[50], [31]])
    clean = online_softmax_attention(query, key, value, key_mask=key_mask, tile=16)
    key[1, :, 31:], value[1, :, 31:] = math.nan, math.inf
    assert torch.equal(clean, online_softmax_attention(query, key, value, key_mask=key_mask, tile=16))
    assert online_softmax_attention(query, key, value, tile=16)[1].isnan().all()


def test_the_future_changes_nothing_to_the_last_bit() -> None:
    query, key, value = (x.detach() for x in tensors(1, 2, 2, 300, 300, 8, 8, dtype=torch.float32))
    before = online_softmax_attention(query, key, value, causal=True)
    key[:, :, 150:] = torch.randn(150, 8)
    value[:, :, 150:] = torch.randn(150, 8)
    assert torch.equal(
        before[:, :, :150], online_softmax_attention(query, key, value, causal=True)[:, :, :150]
    )


def test_with_causality_no_tile_of_the_future_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    from regard.attend import online

    computed = []

    def counting(query: Tensor, key: Tensor, rows: slice, cols: slice, *rest: object) -> Tensor:
        computed.append((rows.start, cols.start))
        return scores_of(query, key, rows, cols, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(online, "scores_of", counting)
    query, key, value = tensors(1, 1, 1, 40, 40, 4, 4)
    online_softmax_attention(query, key, value, causal=True, tile=10)
    assert computed == [(row, col) for row in range(0, 40, 10) for col in range(0, row + 10, 10)]


def test_tiles_cover_every_position_once() -> None:
    assert [i for part in tiles(10, 4) for i in range(part.start, part.stop)] == list(range(10))
    assert list(tiles(0, 4)) == []
    assert list(tiles(10, 4, -3)) == []


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_float32_and_rounded_once(dtype: torch.dtype) -> None:
    query, key, value = (x.detach() for x in tensors(1, 2, 2, 200, 200, 8, 8, dtype=dtype))
    ours = online_softmax_attention(query, key, value, return_lse=True)
    truth = reference_attention(query.double(), key.double(), value.double()).output
    assert ours.output.dtype == dtype
    assert ours.lse.dtype == torch.float32
    assert (ours.output - truth).abs().max() <= torch.finfo(dtype).eps * truth.abs().max()


@pytest.mark.parametrize("shape", [(0, 2, 4, 4), (2, 0, 4, 4), (2, 2, 0, 4), (2, 2, 4, 0), (1, 1, 1, 1)])
def test_empty_and_single_inputs_keep_their_shape(shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, requires_grad=True)
    output = online_softmax_attention(x, x, x, causal=True)
    assert output.shape == shape
    assert torch.autograd.grad(output.sum(), x)[0].shape == shape


def test_it_compiles_in_one_graph_exports_and_maps() -> None:
    inputs = tensors(1, 2, 2, 20, 20, 4, 4)

    class Attend(torch.nn.Module):
        def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            return online_softmax_attention(query, key, value, causal=True, tile=8)

    eager = Attend()(*inputs)
    compiled = torch.compile(Attend(), fullgraph=True, backend="aot_eager")(*inputs)
    torch.testing.assert_close(compiled, eager)
    for mine, true in zip(
        torch.autograd.grad(compiled.sum(), inputs), torch.autograd.grad(eager.sum(), inputs), strict=True
    ):
        torch.testing.assert_close(mine, true)
    torch.testing.assert_close(torch.export.export(Attend(), inputs).module()(*inputs), eager)
    stacked = [torch.stack((x, x)) for x in inputs]
    torch.testing.assert_close(torch.func.vmap(Attend())(*stacked)[1], eager)


def test_what_cannot_be_right_is_refused_with_the_remedy() -> None:
    x = torch.randn(1, 2, 4, 3)
    with pytest.raises(InvalidArgument, match="tile must be a number of positions ≥ 1; got 0"):
        online_softmax_attention(x, x, x, tile=0)
    with pytest.raises(InvalidArgument, match="must be a multiple of"):
        online_softmax_attention(torch.randn(1, 3, 4, 3), x, x)
