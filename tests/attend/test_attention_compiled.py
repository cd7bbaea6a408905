"""`attention` in graphs: compiled without a break, exported with a free length."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import regard
from regard import masks

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

ASKED: dict[str, dict[str, Any]] = {
    "plain": {},
    "causal": {"causal": True},
    "padded": {"key_mask": torch.arange(24)[None] < 20},
    "causal and padded": {"key_mask": torch.arange(24)[None] > 3, "causal": True},
    "mask": {"mask": torch.arange(24 * 24).reshape(24, 24) % 3 > 0},
    "rule": {"mask": masks.causal() & masks.padding([3, 24])},
    "bias": {"bias": torch.linspace(-1, 1, 24 * 24).reshape(24, 24)},
    "window": {"window": (4, 0)},
    "softcap": {"softcap": 3.0},
    "weights": {"return_weights": True},
    "lse": {"return_lse": True},
    "dropout that is off": {"dropout_p": 0.1},
}


def three(heads=4, kv_heads=2, length=24):
    generator = torch.Generator().manual_seed(0)
    shapes = [(2, heads, length, 16), (2, kv_heads, length, 16), (2, kv_heads, length, 16)]
    return [torch.randn(shape, generator=generator) for shape in shapes]


def first(result):
    return result if isinstance(result, torch.Tensor) else result.output


class Attention(nn.Module):
    def __init__(self, asked):
        super().__init__()
        self.asked = asked

    def forward(self, query, key, value):
        return regard.attention(query, key, value, **self.asked)


@pytest.mark.parametrize("name", ASKED)
def test_it_compiles_without_a_graph_break_and_gives_the_same(name):
    torch.compiler.reset()
    compute = Attention(ASKED[name])
    compiled = torch.compile(compute, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        assert_close(compiled(*three()), compute(*three()), rtol=0, atol=2e-6)
    ours, theirs = ([x.requires_grad_() for x in three()] for _ in range(2))
    first(compiled(*ours)).square().sum().backward()
    first(compute(*theirs)).square().sum().backward()
    for one, two in zip(ours, theirs, strict=True):
        assert_close(one.grad, two.grad, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("asked", [{}, {"causal": True}, {"window": (4, 0)}, {"return_lse": True}], ids=str)
@pytest.mark.parametrize("kv_heads", [2, 4])
def test_it_exports_with_a_free_length(asked, kv_heads):
    length = torch.export.Dim("length", min=2, max=4096)
    compute = Attention(asked)
    given = tuple(three(kv_heads=kv_heads))
    exported = torch.export.export(compute, given, dynamic_shapes=({2: length},) * 3, strict=False)
    longer = three(kv_heads=kv_heads, length=77)
    assert_close(first(exported.module()(*longer)), first(compute(*longer)), rtol=0, atol=2e-6)
