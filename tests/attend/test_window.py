"""The window equals the masked formula, forward and backward, and costs no more than its width."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard import masks
from regard.attend.reference import Attended, reference_attention
from regard.attend.window import sliding_window_attention
from regard.errors import InvalidArgument


def twin(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    window: tuple[int | None, int | None],
    global_tokens: int = 0,
    causal: bool = False,
    key_mask: Tensor | None = None,
    scale: float | None = None,
) -> Attended:
    """The O(n²) form, in float64."""
    rule = masks.window(*window)
    if global_tokens:
        rule = rule | masks.global_tokens(global_tokens)
    wide = (x.double() for x in (query, key, value))
    return reference_attention(*wide, mask=rule, causal=causal, key_mask=key_mask, scale=scale)


def tensors(
    b: int, h: int, g: int, q: int, k: int, d: int, dv: int, seed: int = 0, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(seed)
    shapes = (b, h, q, d), (b, g, k, d), (b, g, k, dv)
    query, key, value = (torch.randn(shape, dtype=dtype).requires_grad_() for shape in shapes)
    return query, key, value


sides = st.none() | st.integers(0, 90)


@settings(max_examples=30, deadline=None)
@given(
    lengths=st.tuples(st.integers(0, 150), st.integers(0, 150)),
    window=st.tuples(sides, sides),
    global_tokens=st.sampled_from([0, 0, 1, 5, 70]),
    causal=st.booleans(),
    padded=st.booleans(),
    heads=st.sampled_from([(1, 1), (2, 2), (4, 2), (3, 1)]),
    channels=st.sampled_from([(4, 4), (3, 5), (6, 2)]),
)
def test_window_equals_the_masked_formula_and_so_do_its_gradients(
    lengths: tuple[int, int],
    window: tuple[int | None, int | None],
    global_tokens: int,
    causal: bool,
    padded: bool,
    heads: tuple[int, int],
    channels: tuple[int, int],
) -> None:
    query, key, value = tensors(2, *heads, *lengths, *channels)
    key_mask = torch.rand(2, lengths[1]) < 0.7 if padded else None
    how = {"window": window, "global_tokens": global_tokens, "causal": causal, "key_mask": key_mask}
    ours = sliding_window_attention(query, key, value, **how, return_lse=True)
    truth = twin(query, key, value, **how)
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


def test_long_windows_and_many_bands_join_without_a_seam() -> None:
    query, key, value = tensors(1, 2, 1, 1300, 1300, 8, 8, dtype=torch.float32)
    for window, global_tokens in (((255, 0), 64), ((1000, 40), 0), ((0, 0), 0)):
        ours = sliding_window_attention(query, key, value, window=window, global_tokens=global_tokens)
        truth = twin(query, key, value, window=window, global_tokens=global_tokens).output
        assert (ours - truth).abs().max() < 2e-6  # float32 at typical magnitudes
        grads = torch.autograd.grad(ours.square().sum(), (query, key, value))
        true = torch.autograd.grad(truth.square().sum(), (query, key, value))
        assert max((a - b).abs().max() for a, b in zip(grads, true, strict=True)) < 2e-5


def test_gradients_of_first_and_second_order_are_right_with_the_lse_among_the_outputs() -> None:
    inputs = tensors(1, 2, 1, 5, 6, 2, 1)
    key_mask = torch.tensor([[False] * 2 + [True] * 3 + [False]])

    def attend(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        found = sliding_window_attention(
            query, key, value, window=(2, 1), global_tokens=2, causal=True, key_mask=key_mask, return_lse=True
        )
        return found.output, found.lse.masked_fill(found.lse == -math.inf, 0)

    assert torch.autograd.gradcheck(attend, inputs)
    assert torch.autograd.gradgradcheck(attend, inputs)


def test_own_position_is_visible_and_not_counted() -> None:
    query, key, value = tensors(1, 1, 1, 6, 6, 4, 4)
    alone = sliding_window_attention(query, key, value, window=(0, 0))
    torch.testing.assert_close(alone, value)
    masked = reference_attention(query, key, value, mask=torch.ones(6, 6).tril().triu(-2).bool()).output
    torch.testing.assert_close(sliding_window_attention(query, key, value, window=(2, 0)), masked)


def test_rows_that_see_nothing_have_output_0_and_lse_minus_infinity_and_harm_no_gradient() -> None:
    query, key, value = tensors(1, 2, 2, 10, 4, 4, 4, dtype=torch.float32)
    found = sliding_window_attention(query, key, value, window=(1, 0), return_lse=True)
    assert (found.output[:, :, :6] == 0).all()
    assert (found.lse[:, :, :6] == -math.inf).all()
    for grad in torch.autograd.grad(found.output.sum(), (query, key, value)):
        assert grad.isfinite().all()


def test_what_padding_hides_is_never_touched() -> None:
    query, key, value = (x.detach() for x in tensors(2, 2, 2, 50, 50, 4, 4, dtype=torch.float32))
    key_mask = torch.arange(50) < torch.tensor([[50], [31]])
    clean = sliding_window_attention(query, key, value, window=(9, 9), key_mask=key_mask)
    key[1, :, 31:], value[1, :, 31:] = math.nan, math.inf
    key.requires_grad_()
    dirty = sliding_window_attention(query, key, value, window=(9, 9), key_mask=key_mask)
    assert torch.equal(clean, dirty)
    assert torch.autograd.grad(dirty.sum(), key)[0].isfinite().all()


def test_the_future_changes_nothing_to_the_last_bit() -> None:
    query, key, value = (x.detach() for x in tensors(1, 2, 2, 300, 300, 8, 8, dtype=torch.float32))
    before = sliding_window_attention(query, key, value, window=(40, 0), global_tokens=5, causal=True)
    key[:, :, 150:] = torch.randn(150, 8)
    value[:, :, 150:] = torch.randn(150, 8)
    after = sliding_window_attention(query, key, value, window=(40, 0), global_tokens=5, causal=True)
    assert torch.equal(before[:, :, :150], after[:, :, :150])


def test_a_window_as_wide_as_the_sequence_is_full_attention() -> None:
    query, key, value = tensors(1, 2, 2, 100, 100, 8, 8)
    full = reference_attention(query, key, value).output
    for window in ((99, 99), (None, None), (10**9, 10**9)):
        torch.testing.assert_close(sliding_window_attention(query, key, value, window=window), full)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_float32_and_rounded_once(dtype: torch.dtype) -> None:
    query, key, value = (x.detach() for x in tensors(1, 2, 2, 200, 200, 8, 8, dtype=dtype))
    ours = sliding_window_attention(query, key, value, window=(20, 3), return_lse=True)
    truth = twin(query, key, value, window=(20, 3))
    assert ours.output.dtype == dtype
    assert ours.lse.dtype == torch.float32
    rounding = torch.finfo(dtype).eps * truth.output.abs().max()
    assert (ours.output - truth.output).abs().max() <= rounding


def test_strides_do_not_matter() -> None:
    query, key, value = (x.detach() for x in tensors(2, 2, 2, 70, 70, 8, 8))
    plain = sliding_window_attention(query, key, value, window=(9, 2), global_tokens=3)
    crooked = [x.permute(3, 1, 0, 2).contiguous().permute(2, 1, 3, 0) for x in (query, key, value)]
    torch.testing.assert_close(sliding_window_attention(*crooked, window=(9, 2), global_tokens=3), plain)
    shared = key[:1].expand(2, -1, -1, -1)
    torch.testing.assert_close(
        sliding_window_attention(query, shared, shared, window=(9, 2)),
        sliding_window_attention(query, shared.contiguous(), shared.contiguous(), window=(9, 2)),
    )


def test_no_channels_mean_equal_weights() -> None:
    query, key, value = tensors(1, 1, 1, 5, 5, 0, 3)
    found = sliding_window_attention(query, key, value, window=(None, 0))
    torch.testing.assert_close(found, value.cumsum(2) / torch.arange(1, 6)[:, None])


@pytest.mark.parametrize("shape", [(0, 2, 4, 4), (2, 0, 4, 4), (2, 2, 0, 4), (2, 2, 4, 0), (1, 1, 1, 1)])
def test_empty_and_single_inputs_keep_their_shape(shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, requires_grad=True)
    output = sliding_window_attention(x, x, x, window=(1, 1), global_tokens=1, causal=True)
    assert output.shape == shape
    assert torch.autograd.grad(output.sum(), x)[0].shape == shape


def test_one_graph_holds_it_compiled_and_exported() -> None:
    inputs = tensors(1, 2, 2, 150, 150, 4, 4)

    class Attend(torch.nn.Module):
        def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            return sliding_window_attention(query, key, value, window=(9, 0), global_tokens=2)

    eager = Attend()(*inputs)
    compiled = torch.compile(Attend(), fullgraph=True, backend="aot_eager")(*inputs)
    assert torch.equal(compiled, eager)
    for mine, true in zip(
        torch.autograd.grad(compiled.sum(), inputs), torch.autograd.grad(eager.sum(), inputs), strict=True
    ):
        torch.testing.assert_close(mine, true)
    exported = torch.export.export(Attend(), inputs)
    assert torch.equal(exported.module()(*inputs), eager)
    assert sum("patterned" in str(node.target) for node in exported.graph.nodes) == 1


def test_vmap_and_functional_gradients_agree_with_a_loop() -> None:
    query, key, value = (torch.randn(3, 1, 2, 9, 4, dtype=torch.float64) for _ in range(3))

    def loss(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return sliding_window_attention(query, key, value, window=(2, 0)).square().sum()

    mapped = torch.func.vmap(torch.func.grad(loss, argnums=(0, 1, 2)))(query, key, value)
    for i in range(3):
        one = [x[i].clone().requires_grad_() for x in (query, key, value)]
        for mine, true in zip(mapped, torch.autograd.grad(loss(*one), one), strict=True):
            torch.testing.assert_close(mine[i], true)


def test_forward_mode_says_that_it_is_missing() -> None:
    x = torch.randn(1, 1, 4, 2)
    with pytest.raises(NotImplementedError, match="jvp"):
        torch.func.jvp(lambda x: sliding_window_attention(x, x, x, window=(1, 0)), (x,), (x,))


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"window": (-1, 0)}, "window must count keys ≥ 0 on either side"),
        ({"window": 5}, "window must be a pair (left, right)"),
        ({"window": (1, 0), "global_tokens": -1}, "global_tokens must be a number of tokens ≥ 0; got -1"),
        ({"window": (1, 0), "key_mask": torch.ones(1, 4)}, "key_mask must be a boolean tensor"),
        ({"window": (1, 0), "key_mask": torch.ones(1, 3).bool()}, "key_mask must have the shape"),
    ],
)
def test_what_cannot_be_right_is_refused_with_the_remedy(how: dict[str, object], message: str) -> None:
    x = torch.randn(1, 1, 4, 2)
    with pytest.raises(InvalidArgument) as error:
        sliding_window_attention(x, x, x, **how)  # type: ignore[arg-type]
    assert message in str(error.value)
