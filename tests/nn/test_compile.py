"""torch.compile sees one graph on the common paths, and torch.export takes every module."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from regard.nn import (
    Alibi,
    KVCache,
    MultiHeadAttention,
    RelativePositions,
    RotaryPositions,
    Transformer,
    TransformerBlock,
)

X, TOKENS = torch.randn(2, 6, 16), torch.randint(0, 23, (2, 6))
KEPT = torch.arange(6) < torch.tensor([[6], [4]])
CASES = {
    "self": (lambda: MultiHeadAttention(16, 4), (X,), {}),
    "cross": (lambda: MultiHeadAttention(16, 4, num_kv_heads=2), (X, X[:, :3].clone()), {}),
    "causal": (lambda: MultiHeadAttention(16, 4, causal=True), (X,), {}),
    "padded": (lambda: MultiHeadAttention(16, 4), (X,), {"key_mask": KEPT}),
    "masked": (lambda: MultiHeadAttention(16, 4), (X,), {"mask": KEPT[:, None, None]}),
    "weights": (lambda: MultiHeadAttention(16, 4), (X,), {"return_weights": True}),
    "windowed": (lambda: MultiHeadAttention(16, 4, causal=True, window=(2, 0)), (X,), {}),
    "rotary": (lambda: MultiHeadAttention(16, 4, positions=RotaryPositions(4), qk_norm="rms"), (X,), {}),
    "alibi": (lambda: MultiHeadAttention(16, 4, positions=Alibi(4)), (X,), {}),
    "relative": (lambda: MultiHeadAttention(16, 4, positions=RelativePositions(4)), (X,), {}),
    "extra keys": (lambda: MultiHeadAttention(16, 4, add_bias_kv=True, add_zero_attn=True), (X,), {}),
    "block": (
        lambda: TransformerBlock(16, 4, norm="rms", activation="swiglu", cross=True),
        (X, X[:, :3]),
        {},
    ),
    "decoder": (lambda: Transformer(23, 16, 4, 2), (TOKENS,), {}),
    "encoder–decoder": (lambda: Transformer(23, 16, 4, 1, num_encoder_layers=1), (TOKENS, TOKENS), {}),
}
each = pytest.mark.parametrize(("make", "inputs", "options"), CASES.values(), ids=CASES.keys())


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def flat(result: torch.Tensor | tuple) -> list[torch.Tensor]:
    parts = [result] if isinstance(result, torch.Tensor) else result
    return [part for part in parts if part is not None]


@each
def test_one_graph_forward_and_backward(make, inputs, options):
    torch.manual_seed(0)
    module = make()
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    expected, got = flat(module(*inputs, **options)), flat(compiled(*inputs, **options))
    for one, other in zip(got, expected, strict=True):
        assert_close(one, other, rtol=0, atol=1e-5)
    expected[0].square().sum().backward()
    gradients = [p.grad.clone() for p in module.parameters()]
    module.zero_grad()
    got[0].square().sum().backward()
    for parameter, gradient in zip(module.parameters(), gradients, strict=True):
        assert_close(parameter.grad, gradient, rtol=1e-5, atol=1e-4)


@each
def test_export_gives_the_same(make, inputs, options):
    torch.manual_seed(0)
    module = make().eval()
    exported = torch.export.export(module, inputs, options).module()
    for one, other in zip(flat(exported(*inputs, **options)), flat(module(*inputs, **options)), strict=True):
        assert_close(one, other, rtol=0, atol=1e-5)


def test_export_holds_for_every_length():
    module, n = Transformer(23, 16, 4, 1, positions="rotary").eval(), torch.export.Dim("n", min=2, max=512)
    exported = torch.export.export(module, (TOKENS,), dynamic_shapes=({1: n},)).module()
    for length in (3, 50):
        tokens = torch.randint(0, 23, (2, length))
        assert_close(exported(tokens), module(tokens), rtol=0, atol=1e-5)


def test_decoding_with_a_static_cache_compiles_few_times():
    attend, compiles = MultiHeadAttention(16, 4, causal=True, positions=RotaryPositions(4)).eval(), []

    def counting(graph: torch.fx.GraphModule, _: list[torch.Tensor]) -> torch.fx.GraphModule:
        compiles.append(graph)
        return graph

    compiled = torch.compile(attend, backend=counting)
    x, cache, plain = torch.randn(1, 20, 16), KVCache(capacity=20), KVCache()
    with torch.no_grad():
        for i in range(20):
            token = x[:, i : i + 1]
            assert_close(compiled(token, cache=cache), attend(token, cache=plain), rtol=0, atol=1e-5)
    assert len(compiles) <= 4
