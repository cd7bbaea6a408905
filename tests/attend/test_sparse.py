"""Block-sparse attention equals the formula under the mask that the blocks stand for."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard import masks
from regard.attend.reference import Attended, reference_attention
from regard.attend.sparse import block_sparse_attention
from regard.errors import InvalidArgument


def twin(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    block_mask: Tensor,
    *,
    block_size: int,
    causal: bool = False,
    key_mask: Tensor | None = None,
) -> Attended:
    """The O(n²) form, in float64: every block of the mask blown up to its queries and keys."""
    mask = block_mask.repeat_interleave(block_size, -2).repeat_interleave(block_size, -1)
    mask = mask[..., : query.shape[2], : key.shape[2]]
    mask = mask[(None,) * (4 - mask.ndim)]
    wide = (x.double() for x in (query, key, value))
    return reference_attention(*wide, mask=mask, causal=causal, key_mask=key_mask)


def tensors(
    b: int, h: int, g: int, q: int, k: int, d: int, dv: int, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    shapes = (b, h, q, d), (b, g, k, d), (b, g, k, dv)
    query, key, value = (torch.randn(shape, dtype=dtype).requires_grad_() for shape in shapes)
    return query, key, value


@settings(max_examples=30, deadline=None)
@given(
    lengths=st.tuples(st.integers(0, 130), st.integers(0, 130)),
    block_size=st.sampled_from([1, 7, 16, 64]),
    leading=st.sampled_from([(), (1,), (4,), (1, 1), (2, 1), (2, 4)]),
    density=st.sampled_from([0.0, 0.3, 1.0]),
    causal=st.booleans(),
    padded=st.booleans(),
    kv_heads=st.sampled_from([1, 2, 4]),
    channels=st.sampled_from([(4, 4), (3, 5), (6, 2)]),
)
def test_blocks_equal_the_masked_formula_and_so_do_their_gradients(
    lengths: tuple[int, int],
    block_size: int,
    leading: tuple[int, ...],
    density: float,
    causal: bool,
    padded: bool,
    kv_heads: int,
    channels: tuple[int, int],
) -> None:
    query, key, value = tensors(2, 4, kv_heads, *lengths, *channels)
    blocks = tuple(-(-n // block_size) for n in lengths)
    block_mask = torch.rand(*leading, *blocks) < density
    key_mask = torch.rand(2, lengths[1]) < 0.7 if padded else None
    how = {"block_size": block_size, "causal": causal, "key_mask": key_mask}
    ours = block_sparse_attention(query, key, value, block_mask, **how, return_lse=True)
    truth = twin(query, key, value, block_mask, **how)
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
    block_mask = torch.tensor([[True, False, True], [False, True, True], [False, False, False]])

    def attend(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        found = block_sparse_attention(
            query, key, value, block_mask, block_size=2, causal=True, return_lse=True
        )
        return found.output, found.lse.masked_fill(found.lse == -math.inf, 0)

    assert torch.autograd.gradcheck(attend, inputs)
    assert torch.autograd.gradgradcheck(attend, inputs)


@pytest.mark.parametrize(
    "rule", [masks.bigbird(16), masks.blocks(size=16), masks.bigbird(64, random_blocks=0)]
)
def test_rules_of_blocks_are_taken_as_they_are(rule: masks.BlockMask) -> None:
    query, key, value = tensors(1, 2, 2, 200, 200, 8, 8, dtype=torch.float32)
    ours = block_sparse_attention(query, key, value, rule)
    truth = reference_attention(query.double(), key.double(), value.double(), mask=rule).output
    assert (ours - truth).abs().max() < 2e-6  # float32 at typical magnitudes


def test_a_rule_places_the_last_queries_on_the_last_keys() -> None:
    query, key, value = tensors(1, 2, 2, 72, 200, 8, 8)
    rule = masks.bigbird(16)
    truth = reference_attention(query, key, value, mask=rule).output
    torch.testing.assert_close(block_sparse_attention(query, key, value, rule), truth)


def test_all_blocks_are_full_attention_and_no_block_is_nothing() -> None:
    query, key, value = tensors(1, 2, 2, 100, 100, 8, 8)
    full = block_sparse_attention(query, key, value, torch.ones(4, 4).bool(), block_size=32)
    torch.testing.assert_close(full, reference_attention(query, key, value).output)
    none = block_sparse_attention(query, key, value, torch.zeros(4, 4).bool(), block_size=32, return_lse=True)
    assert (none.output == 0).all()
    assert (none.lse == -math.inf).all()
    assert all((grad == 0).all() for grad in torch.autograd.grad(none.output.sum(), (query, key, value)))


def test_what_padding_hides_is_never_touched() -> None:
    query, key, value = (x.detach() for x in tensors(2, 2, 2, 50, 50, 4, 4, dtype=torch.float32))
    key_mask = torch.arange(50) < torch.tensor([[50], [31]])
    block_mask = torch.ones(4, 4, dtype=torch.bool)
    clean = block_sparse_attention(query, key, value, block_mask, block_size=16, key_mask=key_mask)
    key[1, :, 31:], value[1, :, 31:] = math.nan, math.inf
    key.requires_grad_()
    dirty = block_sparse_attention(query, key, value, block_mask, block_size=16, key_mask=key_mask)
    assert torch.equal(clean, dirty)
    assert torch.autograd.grad(dirty.sum(), key)[0].isfinite().all()


def test_blocks_that_nobody_sees_are_never_touched() -> None:
    query, key, value = (x.detach() for x in tensors(1, 2, 2, 64, 64, 4, 4, dtype=torch.float32))
    block_mask = torch.tensor([[True, False], [True, False]])
    key[:, :, 32:], value[:, :, 32:] = math.nan, math.inf
    assert block_sparse_attention(query, key, value, block_mask, block_size=32).isfinite().all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_float32_and_rounded_once(dtype: torch.dtype) -> None:
    query, key, value = (x.detach() for x in tensors(1, 2, 2, 100, 100, 8, 8, dtype=dtype))
    block_mask = torch.rand(4, 4) < 0.6
    ours = block_sparse_attention(query, key, value, block_mask, block_size=32)
    truth = twin(query, key, value, block_mask, block_size=32).output
    assert ours.dtype == dtype
    assert (ours - truth).abs().max() <= torch.finfo(dtype).eps * truth.abs().max()


@pytest.mark.parametrize("shape", [(0, 2, 4, 4), (2, 0, 4, 4), (2, 2, 0, 4), (2, 2, 4, 0), (1, 1, 1, 1)])
def test_empty_and_single_inputs_keep_their_shape(shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, requires_grad=True)
    block_mask = torch.ones(-(-shape[2] // 2), -(-shape[2] // 2), dtype=torch.bool)
    output = block_sparse_attention(x, x, x, block_mask, block_size=2, causal=True)
    assert output.shape == shape
    assert torch.autograd.grad(output.sum(), x)[0].shape == shape


def test_one_graph_holds_it_compiled_and_exported() -> None:
    inputs = (*tensors(1, 2, 2, 60, 60, 4, 4), torch.rand(4, 4) < 0.7)

    class Attend(torch.nn.Module):
        def forward(self, query: Tensor, key: Tensor, value: Tensor, block_mask: Tensor) -> Tensor:
            return block_sparse_attention(query, key, value, block_mask, block_size=16)

    eager = Attend()(*inputs)
    compiled = torch.compile(Attend(), fullgraph=True, backend="aot_eager")(*inputs)
    assert torch.equal(compiled, eager)
    for mine, true in zip(
        torch.autograd.grad(compiled.sum(), inputs[:3]),
        torch.autograd.grad(eager.sum(), inputs[:3]),
        strict=True,
    ):
        torch.testing.assert_close(mine, true)
    exported = torch.export.export(Attend(), inputs).module()
    assert torch.equal(exported(*inputs[:3], ~inputs[3]), Attend()(*inputs[:3], ~inputs[3]))


def test_vmap_agrees_with_a_loop() -> None:
    query, key, value = (torch.randn(3, 1, 2, 20, 4) for _ in range(3))
    masks_of = torch.rand(3, 3, 3) < 0.7

    def attend(query: Tensor, key: Tensor, value: Tensor, block_mask: Tensor) -> Tensor:
        return block_sparse_attention(query, key, value, block_mask, block_size=8)

    mapped = torch.func.vmap(attend)(query, key, value, masks_of)
    for i in range(3):
        torch.testing.assert_close(mapped[i], attend(query[i], key[i], value[i], masks_of[i]))


@pytest.mark.parametrize(
    ("block_mask", "size", "message"),
    [
        (torch.ones(2, 2), 2, "block_mask must be boolean, True = may attend; got torch.float32"),
        (torch.ones(3, 2).bool(), 2, "block_mask must have the shape (2, 2), with heads"),
        (torch.ones(3, 2, 2).bool(), 2, "got (3, 2, 2)"),
        (torch.ones(2, 2).bool(), 0, "block_size must be a number of positions ≥ 1; got 0"),
        (masks.bigbird(3), 2, "as many queries as keys, or fewer by whole blocks of 3; got 4 and 5"),
    ],
)
def test_what_cannot_be_right_is_refused_with_the_remedy(block_mask: object, size: int, message: str) -> None:
    x = torch.randn(1, 2, 4, 2)
    key = torch.randn(1, 2, 5, 2) if isinstance(block_mask, masks.BlockMask) else x
    with pytest.raises(InvalidArgument) as error:
        block_sparse_attention(x, key, key, block_mask, block_size=size)  # type: ignore[arg-type]
    assert message in str(error.value)
