"""from_torch and to_torch: equal outputs, equal weights, equal gradients, over all of torch's options."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from regard.errors import InvalidArgument
from regard.nn import MultiHeadAttention, RotaryPositions

SWITCHES = list(itertools.product([True, False], repeat=5))
NAMES = ("bias", "add_bias_kv", "add_zero_attn", "batch_first", "other widths")


def pair(bias, add_bias_kv, add_zero_attn, batch_first, other_widths):
    torch.manual_seed(0)
    widths = {"kdim": 5, "vdim": 3} if other_widths else {}
    theirs = nn.MultiheadAttention(
        16,
        4,
        bias=bias,
        add_bias_kv=add_bias_kv,
        add_zero_attn=add_zero_attn,
        batch_first=batch_first,
        dtype=torch.float64,
        **widths,
    )
    with torch.no_grad():
        for parameter in theirs.parameters():  # biases too
            parameter.normal_(std=0.3)
    query, key, value = (torch.randn(2, n, d).double() for n, d in ((5, 16), (7, 5), (7, 3)))
    if not other_widths:
        key, value = torch.randn(2, 7, 16).double(), torch.randn(2, 7, 16).double()
    inputs = [x if batch_first else x.transpose(0, 1) for x in (query, key, value)]
    return theirs, inputs


@pytest.mark.parametrize(
    "switches", SWITCHES, ids=lambda s: ",".join(n for n, on in zip(NAMES, s, strict=True) if on)
)
def test_outputs_weights_and_gradients_equal_torch_there_and_back(switches):
    theirs, inputs = pair(*switches)
    ours = MultiHeadAttention.from_torch(theirs)
    back = ours.to_torch()
    hidden = torch.zeros(2, 7, dtype=torch.bool)
    hidden[0, 5:] = True  # torch's convention: True = may not attend
    blocked = torch.rand(5, 7) > 0.7
    blocked[:, 0] = False
    expected, weights = theirs(
        *inputs, key_padding_mask=hidden, attn_mask=blocked, average_attn_weights=False
    )
    got = ours(*inputs, key_mask=~hidden, mask=~blocked, return_weights=True)
    assert_close(got.output, expected, rtol=0, atol=1e-12)
    assert_close(got.weights, weights, rtol=0, atol=1e-12)
    again, _ = back(*inputs, key_padding_mask=hidden, attn_mask=blocked)
    assert_close(again, expected, rtol=0, atol=1e-12)
    expected.square().sum().backward()
    got.output.square().sum().backward()
    assert_close(ours.output.weight.grad, theirs.out_proj.weight.grad, rtol=0, atol=1e-10)
    for theirs_grad, part in zip(
        theirs.in_proj_weight.grad.chunk(3)
        if theirs.in_proj_weight is not None
        else (theirs.q_proj_weight.grad, theirs.k_proj_weight.grad, theirs.v_proj_weight.grad),
        _gradients(ours),
        strict=True,
    ):
        assert_close(part, theirs_grad, rtol=0, atol=1e-10)


def _gradients(ours: MultiHeadAttention) -> list[torch.Tensor]:
    parts = ours.projections
    if parts.is_packed:
        return list(parts.packed.weight.grad.split(parts.widths))
    return [linear.weight.grad for linear in (parts.query, parts.key, parts.value)]


def test_self_attention_in_evaluation_equals_torch_on_its_fast_path():
    theirs = nn.MultiheadAttention(16, 4, batch_first=True).eval()
    ours, x = MultiHeadAttention.from_torch(theirs), torch.randn(2, 5, 16)
    with torch.no_grad():
        assert_close(ours(x), theirs(x, x, x, need_weights=False)[0], rtol=0, atol=1e-6)


def test_causal_is_told_when_taking_over():
    theirs = nn.MultiheadAttention(16, 4, batch_first=True).eval()
    ours, x = MultiHeadAttention.from_torch(theirs, causal=True), torch.randn(2, 5, 16)
    future = torch.ones(5, 5, dtype=torch.bool).triu(1)
    assert_close(ours(x), theirs(x, x, x, attn_mask=future, is_causal=True)[0], rtol=0, atol=1e-6)


def test_dropout_mode_and_dtype_are_taken_over():
    theirs = nn.MultiheadAttention(16, 4, dropout=0.25, dtype=torch.bfloat16).eval()
    ours = MultiHeadAttention.from_torch(theirs)
    assert (ours.dropout, ours.training, ours.output.weight.dtype) == (0.25, False, torch.bfloat16)
    back = ours.train().to_torch()
    assert (back.dropout, back.training, back.out_proj.weight.dtype) == (0.25, True, torch.bfloat16)


def test_weights_are_copied_not_shared():
    theirs = nn.MultiheadAttention(16, 4)
    ours = MultiHeadAttention.from_torch(theirs)
    before = ours.projections.packed.weight.clone()
    nn.init.zeros_(theirs.in_proj_weight)
    assert torch.equal(ours.projections.packed.weight, before)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"num_kv_heads": 2}, "num_kv_heads"),
        ({"d_k": 5}, "d_k, d_v"),
        ({"output_bias": False}, "output_bias"),
        ({"window": (1, 1)}, "window"),
        ({"positions": RotaryPositions(4), "qk_norm": "rms"}, "positions, qk_norm"),
        ({"softcap": 3.0, "scale": 1.0}, "scale, softcap"),
        ({"output_dropout": 0.1}, "output_dropout"),
        (
            {"causal": True},
            r"causal of this module\. Torch is told at each call what is causal \(attn_mask\)",
        ),
    ],
)
def test_what_torch_cannot_do_is_named(options, named):
    with pytest.raises(InvalidArgument, match=f"has no counterpart for {named}"):
        MultiHeadAttention(16, 4, **options).to_torch()


def test_only_torchs_module_is_taken_over():
    with pytest.raises(InvalidArgument, match=r"must be a torch\.nn\.MultiheadAttention; got Linear"):
        MultiHeadAttention.from_torch(nn.Linear(2, 2))
