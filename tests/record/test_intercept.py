"""What goes through PyTorch's attention function is recorded, whoever calls it, and equals the formula."""

from __future__ import annotations

import functools
import sys
import threading
import types
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention as imported_by_name

import regard
from regard.errors import NothingToRecord
from regard.record import intercept

aliased = F.scaled_dot_product_attention
held_in_a_partial = functools.partial(F.scaled_dot_product_attention)


@pytest.fixture(autouse=True)
def nothing_stays_changed() -> Any:
    """Around every test: the functions, and the names bound to them, are the same after as before."""
    before = F.scaled_dot_product_attention, F.multi_head_attention_forward
    fast = torch.backends.mha.get_fastpath_enabled()
    yield
    assert (F.scaled_dot_product_attention, F.multi_head_attention_forward) == before
    assert imported_by_name is before[0]
    assert aliased is before[0]
    assert torch.backends.mha.get_fastpath_enabled() == fast
    assert intercept._listeners == ()
    assert not intercept._bound


class Attention(nn.Module):
    """An attention as people write one; `call` is how it reaches PyTorch's function."""

    def __init__(self, call: Any = None, kv_heads: int = 4, **options: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.q, self.k, self.v = nn.Linear(32, 32), nn.Linear(32, 8 * kv_heads), nn.Linear(32, 8 * kv_heads)
        self.call, self.options = call, options

    def heads(self, x: Tensor) -> tuple[Tensor, ...]:
        return tuple(p(x).unflatten(-1, (-1, 8)).transpose(1, 2) for p in (self.q, self.k, self.v))

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.heads(x)
        call = self.call or F.scaled_dot_product_attention
        return call(query, key, value, **self.options).transpose(1, 2).flatten(2)


def by_formula(
    module: Attention, x: Tensor, mask: Tensor | None = None, scale: float | None = None
) -> Tensor:
    """The weights by the definition, in float64, (b, h, q, k)."""
    query, key, _ = (t.double() for t in module.heads(x))
    key = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
    logits = query @ key.transpose(-1, -2) * (scale or query.shape[-1] ** -0.5)
    if mask is not None:
        logits = logits.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else logits + mask
    return torch.softmax(logits, -1)


def x(items: int = 1, length: int = 7) -> Tensor:
    return torch.randn(items, length, 32, generator=torch.Generator().manual_seed(1)) * 3


def close(weights: Tensor, expected: Tensor) -> None:
    """Equal up to float32: logits of up to 20 are sums of 8 products."""
    torch.testing.assert_close(weights.double(), expected, rtol=0, atol=1e-5)


def through_a_name(*args: Any, **kwargs: Any) -> Any:
    return imported_by_name(*args, **kwargs)


def through_an_alias(*args: Any, **kwargs: Any) -> Any:
    return aliased(*args, **kwargs)


@pytest.mark.parametrize("call", [None, through_a_name, through_an_alias, F.scaled_dot_product_attention])
def test_every_way_to_the_function_is_heard(call: Any) -> None:
    module = Attention(call)
    recording = regard.record(module, x())
    assert recording.provenance.doors == ("torch",)
    close(recording.weights(layer=0), by_formula(module, x())[0])
    assert recording.proof.rows == 4
    assert recording.proof.max_error < 1e-5
    assert recording.kinds == ("self",)


def test_a_function_kept_where_nobody_can_reach_it_is_refused() -> None:
    with pytest.raises(NothingToRecord, match="No attention of Attention was seen"):
        regard.record(Attention(held_in_a_partial), x())


TRIANGLE = torch.ones(7, 7, dtype=torch.bool).tril()
BAND = TRIANGLE & ~TRIANGLE.tril(-3)
FLOATS = torch.randn(4, 7, 7, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize(
    ("options", "mask", "kind"),
    [
        ({"is_causal": True}, TRIANGLE, "causal"),
        ({"attn_mask": TRIANGLE}, TRIANGLE, "causal"),
        ({"attn_mask": BAND[None, None]}, BAND, "causal"),
        ({"attn_mask": ~TRIANGLE.triu(3)}, ~TRIANGLE.triu(3), "self"),
        ({"attn_mask": FLOATS}, FLOATS, "self"),
        ({"attn_mask": torch.zeros(7, 7).masked_fill(~TRIANGLE, -torch.inf)}, TRIANGLE, "causal"),
        ({"scale": 0.1}, None, "self"),
    ],
)
def test_masks_hints_and_scales_are_those_that_ran(options: dict[str, Any], mask: Tensor, kind: str) -> None:
    module = Attention(**options)
    recording = regard.record(module, x(2))
    for item in range(2):
        expected = by_formula(module, x(2), mask, options.get("scale"))[item]
        close(recording.weights(layer=0, item=item), expected)
    assert recording.kinds == (kind,)


def test_grouped_queries_read_the_key_head_that_pytorch_repeats() -> None:
    module = Attention(kv_heads=2, enable_gqa=True)
    recording = regard.record(module, x())
    assert (recording.sites[0].heads, recording.sites[0].kv_heads) == (4, 2)
    close(recording.weights(layer=0), by_formula(module, x())[0])


def test_the_causal_hint_counts_from_the_first_key_when_lengths_differ() -> None:
    class Cross(Attention):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            query, (_, key, value) = self.heads(x)[0], self.heads(y)
            return F.scaled_dot_product_attention(query, key, value, is_causal=True)

    weights = regard.record(Cross(), (x(1, 3), x(1, 5))).weights(layer=0)
    assert weights.shape == (4, 3, 5)
    assert (weights != 0)[0].tolist() == torch.ones(3, 5, dtype=torch.bool).tril().tolist()


def test_dropout_leaves_the_weights_and_takes_the_proof() -> None:
    module = Attention(dropout_p=0.5)
    recording = regard.record(module, x())
    close(recording.weights(layer=0), by_formula(module, x())[0])
    assert recording.proof.rows == 0
    assert "dropout" in recording.proof.note


def test_a_single_head_without_an_axis_of_heads_is_one() -> None:
    class Single(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(x, x, x)

    recording = regard.record(Single(), x(3))
    assert recording.shape(0) == (1, 7, 7)
    assert recording.items == 3
    expected = torch.softmax(x(3) @ x(3).transpose(1, 2) / 32**0.5, -1)
    torch.testing.assert_close(recording.weights(layer=0, item=2)[0], expected[2])


# torch.nn.MultiheadAttention and torch.nn.Transformer


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("averaged", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
def test_multihead_attention_is_recorded_whether_it_is_asked_for_weights_or_not(
    need_weights: bool, averaged: bool, batch_first: bool
) -> None:
    torch.manual_seed(0)
    module = nn.MultiheadAttention(32, 4, batch_first=batch_first).eval()
    given = x(2) if batch_first else x(2).transpose(0, 1)
    padding = torch.tensor([[False] * 7, [False] * 4 + [True] * 3])
    later = ~TRIANGLE
    options = {"key_padding_mask": padding, "attn_mask": later}
    expected = module(given, given, given, average_attn_weights=False, **options)
    with regard.Recorder(module) as recorder, torch.no_grad():
        output, _ = module(
            given, given, given, need_weights=need_weights, average_attn_weights=averaged, **options
        )
    torch.testing.assert_close(output, expected[0])
    recording = recorder.recording
    assert recording.kinds == ("causal",)
    assert recording.proof.max_error < 1e-5
    for item in range(2):
        torch.testing.assert_close(recording.weights(layer=0, item=item), expected[1][item])


def test_cross_attention_is_told_by_its_keys() -> None:
    module = nn.MultiheadAttention(32, 4, batch_first=True).eval()
    with regard.Recorder(module) as recorder:
        module(x(1, 5), x(1, 5) + 1, x(1, 5) + 1)
    assert recorder.recording.kinds == ("cross",)


def test_asked_for_weights_the_output_is_the_same_to_the_last_bit() -> None:
    module = nn.MultiheadAttention(32, 4, batch_first=True).train()
    module.dropout = 0.3
    torch.manual_seed(5)
    plain = module(x(), x(), x())
    torch.manual_seed(5)
    with regard.Recorder(module) as recorder:
        recorded = module(x(), x(), x())
    assert torch.equal(plain[0], recorded[0])
    assert torch.equal(plain[1], recorded[1])
    assert recorder.recording.weights(layer=0).sum(-1).sub(1).abs().max() < 1e-5


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_an_encoder_is_recorded_though_it_has_a_fast_path() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 4, 48, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 3).eval()
    padding = torch.tensor([[False] * 7, [False] * 5 + [True] * 2])
    with torch.no_grad():
        fast = encoder(x(2), src_key_padding_mask=padding)
    recording = regard.record(encoder, {"src": x(2), "src_key_padding_mask": padding})
    assert recording.layers == (0, 1, 2)
    assert [site.name for site in recording.sites] == [f"layers.{i}.self_attn" for i in range(3)]
    assert recording.weights(layer=1, item=1)[:, :, 5:].count_nonzero() == 0
    assert any("fast path" in note for note in recording.provenance.notes)
    with torch.no_grad():
        assert torch.equal(encoder(x(2), src_key_padding_mask=padding), fast)


def test_a_transformer_has_three_kinds_of_attention() -> None:
    torch.manual_seed(0)
    model = nn.Transformer(32, 4, 2, 3, 48, batch_first=True)
    inputs = {"src": x(1, 6), "tgt": x(1, 4), "tgt_mask": nn.Transformer.generate_square_subsequent_mask(4)}
    recording = regard.record(model, inputs)
    found = [(site.kind, site.layer) for site in recording.sites]
    assert sorted(found) == sorted(
        [("self", 0), ("self", 1), *((kind, i) for kind in ("causal", "cross") for i in range(3))]
    )
    assert recording.shape(2, kind="cross") == (4, 4, 6)


# regard.nn


@pytest.mark.parametrize(
    "options",
    [{}, {"causal": True}, {"causal": True, "window": (2, 0)}, {"num_kv_heads": 2}, {"softcap": 5.0}],
)
def test_our_own_attention_is_recorded_by_its_rule(options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    module = regard.nn.MultiHeadAttention(32, 4, **options).eval()
    expected = module(x(2), return_weights=True).weights
    recording = regard.record(module, x(2))
    assert recording.proof.max_error < 1e-5
    for item in range(2):
        torch.testing.assert_close(recording.weights(layer=0, item=item), expected[item])
    assert recording.kinds == ("causal" if options.get("causal") else "self",)


# Names, threads, nesting, errors


class Block(nn.Module):
    def __init__(self, fail: bool = False) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Attention() for _ in range(3))
        self.fail = fail

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + layer(x)
        if self.fail:
            raise RuntimeError("in the middle")
        return x


def test_sites_are_named_by_the_innermost_running_module() -> None:
    recording = regard.record(Block(), x())
    assert [(site.name, site.layer) for site in recording.sites] == [(f"layers.{i}", i) for i in range(3)]


def test_another_model_in_the_block_and_calls_outside_any_are_not_heard() -> None:
    model, other = Block(), Block()
    with regard.Recorder(model) as recorder:
        other(x())
        model(x())
        F.scaled_dot_product_attention(x()[None], x()[None], x()[None])
    assert len(recorder.recording.sites) == 3


def test_a_recorder_inside_another_hears_its_own_part() -> None:
    model = Block()
    with regard.Recorder(model) as outer, regard.Recorder(model.layers[1]) as inner:
        model(x())
    assert len(outer.recording.sites) == 3
    assert [site.name for site in inner.recording.sites] == [""]
    assert torch.equal(inner.recording.weights(layer=0), outer.recording.weights(layer=1))


def test_threads_hear_their_own_calls() -> None:
    model, results, failures = Block(), {}, []
    start = threading.Barrier(8)

    def work(length: int) -> None:
        try:
            start.wait()
            for _ in range(5):
                results[length] = regard.record(model, x(1, length))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(length,)) for length in range(2, 10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert {n: [s.query.shape[2] for s in r.sites] for n, r in results.items()} == {
        n: [n] * 3 for n in range(2, 10)
    }


def test_everything_is_restored_when_the_model_raises() -> None:
    with pytest.raises(RuntimeError, match="in the middle"):
        regard.record(Block(fail=True), x())


def test_gradients_flow_as_without() -> None:
    model = Block()

    def gradients() -> list[Tensor]:
        model.zero_grad()
        model(x()).square().sum().backward()
        return [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]

    plain = gradients()
    with regard.Recorder(model):
        recorded = gradients()
    assert all(torch.equal(a, b) for a, b in zip(plain, recorded, strict=True))


def test_a_model_of_ones_own_needs_no_transformers() -> None:
    import subprocess

    code = (
        "import sys, torch, regard\n"
        "model = torch.nn.MultiheadAttention(8, 2, batch_first=True)\n"
        "with regard.Recorder(model) as recorder:\n"
        "    model(*[torch.randn(1, 3, 8)] * 3)\n"
        "print(len(recorder.recording.sites), 'transformers' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "False"]


def test_a_compiled_model_runs_as_it_is_written_and_says_so() -> None:
    model = Block()
    compiled = torch.compile(model, backend="eager")
    plain = compiled(x())
    recording = regard.record(compiled, x())
    assert [site.layer for site in recording.sites] == [0, 1, 2]
    assert "ran uncompiled" in " ".join(recording.provenance.notes)
    assert torch.equal(recording.weights(layer=2), regard.record(model, x()).weights(layer=2))
    assert torch.equal(compiled(x()), plain)


def test_a_name_bound_in_a_module_that_comes_between_two_recordings_is_heard() -> None:
    regard.record(Attention(), x())
    late = types.ModuleType("comes_late")
    late.scaled_dot_product_attention = F.scaled_dot_product_attention  # type: ignore[attr-defined]
    sys.modules["comes_late"] = late
    try:
        own = Attention(lambda *args, **given: late.scaled_dot_product_attention(*args, **given))
        assert torch.equal(
            regard.record(own, x()).weights(layer=0), regard.record(Attention(), x()).weights(layer=0)
        )
    finally:
        del sys.modules["comes_late"]
