"""The modules of `regard.nn` are recorded as any others: equal to the weights that they return themselves."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import Any

import pytest
import torch
from torch import Tensor

import regard


def x(items: int = 2, length: int = 6, seed: int = 0) -> Tensor:
    return torch.randn(items, length, 16, generator=torch.Generator().manual_seed(seed))


def made(kind: str, *sizes: int, **options: Any) -> Any:
    torch.manual_seed(0)
    return getattr(regard.nn, kind)(*sizes, **options).eval()


def equal(recording: regard.Recording, site: str, weights: Tensor) -> None:
    for item in range(len(weights)):
        torch.testing.assert_close(recording.weights(site=site, item=item), weights[item], rtol=0, atol=1e-6)


@pytest.mark.parametrize("norm_first", [True, False])
def test_a_block_with_memory_has_two_attentions(norm_first: bool) -> None:
    block = made("TransformerBlock", 16, 4, causal=True, cross=True, norm_first=norm_first)
    memory = x(2, 9, 1)
    own = block(x(), memory, return_weights=True)
    with regard.Recorder(block) as recorder:
        block(x(), memory)
    recording = recorder.recording
    assert [site.kind for site in recording.sites] == ["causal", "cross"]
    first, second = (site.name for site in recording.sites)
    equal(recording, first, own.weights)
    equal(recording, second, own.memory_weights)
    assert recording.proof.max_error < 1e-5


def test_an_encoder_and_a_decoder_have_the_layers_of_their_stacks() -> None:
    encoder, decoder = made("Encoder", 16, 4, 2), made("Decoder", 16, 4, 3, cross=True, num_kv_heads=2)
    keep = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
    own = encoder(x(), key_mask=keep, return_weights=True)
    with regard.Recorder(encoder) as recorder:
        memory = encoder(x(), key_mask=keep)
    assert recorder.recording.layers == (0, 1)
    for site, weights in zip(recorder.recording.sites, own.weights, strict=True):
        equal(recorder.recording, site.name, weights)
    own = decoder(x(2, 5, 2), memory, memory_key_mask=keep, return_weights=True)
    with regard.Recorder(decoder) as recorder:
        decoder(x(2, 5, 2), memory, memory_key_mask=keep)
    recording = recorder.recording
    assert recording.layers == (0, 1, 2)
    by_kind = {kind: [s.name for s in recording.sites if s.kind == kind] for kind in ("causal", "cross")}
    for name, weights in zip(by_kind["causal"], own.weights, strict=True):
        equal(recording, name, weights)
    for name, weights in zip(by_kind["cross"], own.memory_weights, strict=True):
        equal(recording, name, weights)


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary", "alibi", "relative"])
def test_a_transformer_is_recorded_whatever_its_positions(positions: Any) -> None:
    model = made("Transformer", 40, 16, 4, 2, num_encoder_layers=2, positions=positions)
    target, source = torch.randint(0, 40, (1, 5)), torch.randint(0, 40, (1, 7))
    recording = regard.record(model, (target, source))
    kinds = [site.kind for site in recording.sites]
    assert (kinds.count("self"), kinds.count("causal"), kinds.count("cross")) == (2, 2, 2)
    assert recording.proof.rows > 0
    assert recording.proof.max_error < 1e-5
    for site in recording.sites:
        total = recording.weights(site=site.name).sum(-1)
        torch.testing.assert_close(total, torch.ones_like(total))


@pytest.mark.parametrize("window", [None, (3, 0)])
def test_each_step_with_a_cache_gives_the_row_that_the_module_returns(window: Any) -> None:
    block = made("TransformerBlock", 16, 4, causal=True, num_kv_heads=2, window=window)
    cache, owns = block.new_cache(), []
    with torch.no_grad():
        for i in range(6):
            owns.append(block(x()[:, i : i + 1], cache=cache, return_weights=True).weights)
    cache = block.new_cache()
    with regard.Recorder(block) as recorder, torch.no_grad():
        for i in range(6):
            block(x()[:, i : i + 1], cache=cache)
    assert len(recorder.recordings) == 6
    whole = block(x(), return_weights=True).weights
    for i, (recording, own) in enumerate(zip(recorder.recordings, owns, strict=True)):
        equal(recording, recording.sites[0].name, own)
        first = i + 1 - own.shape[-1]  # a sliding cache hands over the last keys alone
        torch.testing.assert_close(
            recording.weights(layer=0, item=1)[:, 0], whole[1, :, i, first : i + 1], rtol=0, atol=1e-6
        )


def test_asking_a_module_for_its_weights_records_them_too_and_changes_nothing() -> None:
    attention = made("MultiHeadAttention", 16, 4, causal=True)
    plain = attention(x())
    with regard.Recorder(attention) as recorder:
        attended = attention(x(), return_weights=True)
    assert torch.equal(attended.output, attention(x(), return_weights=True).output)
    torch.testing.assert_close(attended.output, plain)
    equal(recorder.recording, "", attended.weights)


def test_gradients_of_a_training_step_are_the_same() -> None:
    model = made("Transformer", 40, 16, 4, 2, dropout=0.0).train()
    ids = torch.randint(0, 40, (2, 6))

    def step() -> list[Tensor]:
        model.zero_grad()
        model(ids).square().mean().backward()
        return [p.grad.clone() for p in model.parameters() if p.grad is not None]

    plain = step()
    with regard.Recorder(model) as recorder:
        recorded = step()
    assert all(torch.equal(a, b) for a, b in zip(plain, recorded, strict=True))
    assert recorder.recording.layers == (0, 1)


def test_the_first_recording_of_a_process_sees_what_the_second_one_sees() -> None:
    program = """
        import torch, regard
        class Model(torch.nn.Module):
            def forward(self, x):
                return regard.attention(x, x, x, causal=True)
        x, shapes = torch.randn(1, 2, 5, 4), []
        for _ in range(2):
            with regard.Recorder(Model()) as recorder:
                recorder.subject.model(x)
            shapes.append(recorder.recording.shape(layer=0))
        assert shapes == [(2, 5, 5)] * 2, shapes
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True)
