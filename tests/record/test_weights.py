"""Recorded weights are the model's own: what its eager attention returns, for every layer and head."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

import regard

# Two float32 ways to the same softmax: sums of ≤ 40 products and logits up to about 30 differ by a few 1e-6.
TOLERANCE = 1e-5

TEXTS = ["He put the pen in the box.", "Short.", "The quick brown fox jumps over the lazy dog, twice."]


@contextmanager
def eager(model: Any) -> Iterator[None]:
    """Eager attention for the time of the block."""
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        yield
    finally:
        model.set_attn_implementation(before)


def own_weights(model: Any, inputs: dict[str, Tensor]) -> tuple[Tensor, ...]:
    """What the model itself says its weights are, one (b, h, q, k) per layer."""
    with eager(model), torch.no_grad():
        given: tuple[Tensor, ...] = model(**inputs, output_attentions=True).attentions
    return given


def worst(recording: regard.Recording, expected: tuple[Tensor, ...]) -> float:
    """The largest difference over all items, layers and heads, outside of padding."""
    assert recording.layers == tuple(range(len(expected)))
    largest = 0.0
    for item in range(recording.items):
        span = recording.sequences["text"].spans[item]
        own = slice(span.start, span.stop)
        for layer, theirs in enumerate(expected):
            ours = recording.weights(layer=layer, item=item)
            assert ours.shape == (theirs.shape[1], len(span), len(span))
            largest = max(largest, (ours - theirs[item][:, own, own]).abs().max().item())
    return largest


def ids(shape: tuple[int, int], seed: int = 0) -> Tensor:
    """Random token ids, none of which is padding."""
    return torch.randint(4, 60, shape, generator=torch.Generator().manual_seed(seed))


def padded(model: Any, side: str) -> dict[str, Tensor]:
    """Three items of 9, 4 and 1 tokens."""
    tokens, mask = ids((3, 9)), torch.zeros(3, 9, dtype=torch.long)
    for item, length in enumerate((9, 4, 1)):
        kept = slice(0, length) if side == "right" else slice(9 - length, 9)
        mask[item, kept] = 1
    return {"input_ids": torch.where(mask.bool(), tokens, model.config.pad_token_id), "attention_mask": mask}


def test_one_sequence_equals_eager(tiny: Any) -> None:
    inputs = {"input_ids": ids((1, 11))}
    assert worst(regard.record(tiny, inputs), own_weights(tiny, inputs)) < TOLERANCE


@pytest.mark.parametrize("side", ["right", "left"])
def test_padded_batch_equals_eager(tiny: Any, side: str) -> None:
    inputs = padded(tiny, side)
    recording = regard.record(tiny, inputs)
    assert [len(recording.tokens(item)) for item in range(3)] == [9, 4, 1]
    assert worst(recording, own_weights(tiny, inputs)) < TOLERANCE


def test_pair_equals_eager(tiny: Any, family: str) -> None:
    inputs = {"input_ids": ids((1, 10))}
    if family != "distilbert":
        inputs["token_type_ids"] = torch.tensor([[0] * 6 + [1] * 4])
    recording = regard.record(tiny, inputs)
    assert worst(recording, own_weights(tiny, inputs)) < TOLERANCE
    if family != "distilbert":
        assert recording.tokens().segments == (0,) * 6 + (1,) * 4


def test_recording_while_eager_equals_eager(tiny: Any) -> None:
    inputs = padded(tiny, "right")
    with eager(tiny):
        recording = regard.record(tiny, inputs)
    assert recording.provenance.kernels == ("eager",)
    assert worst(recording, own_weights(tiny, inputs)) < TOLERANCE


def test_minilm_equals_eager_for_one_text(minilm: Any, fox: Any) -> None:
    inputs = minilm.tokenizer("The quick brown fox jumps over the lazy dog.", return_tensors="pt")
    assert worst(fox, own_weights(minilm.model, inputs)) < TOLERANCE


def test_minilm_equals_eager_for_a_pair(minilm: Any) -> None:
    pair = ("He put the pen in the box.", "It was full.")
    inputs = minilm.tokenizer(*pair, return_tensors="pt")
    assert worst(regard.record(minilm, *pair), own_weights(minilm.model, inputs)) < TOLERANCE


@pytest.mark.parametrize("side", ["right", "left"])
def test_minilm_equals_eager_for_a_batch(minilm: Any, side: Any) -> None:
    inputs = minilm.tokenizer(TEXTS, padding=True, padding_side=side, return_tensors="pt")
    recording = regard.record(minilm, TEXTS, padding=side)
    assert worst(recording, own_weights(minilm.model, inputs)) < TOLERANCE


def test_minilm_equals_eager_at_its_full_length(minilm: Any) -> None:
    text = "word and other words, " * 300
    inputs = minilm.tokenizer(text, truncation=True, max_length=512, return_tensors="pt")
    recording = regard.record(minilm, text, truncate=True)
    assert recording.provenance.truncated
    assert worst(recording, own_weights(minilm.model, inputs)) < TOLERANCE


def test_albert_numbers_every_pass_through_its_one_module(tiny_albert: Any) -> None:
    recording = regard.record(tiny_albert, {"input_ids": ids((1, 5))})
    assert recording.layers == (0, 1, 2)
    assert len({site.name for site in recording.sites}) == 1
    assert not torch.equal(recording.weights(layer=0), recording.weights(layer=1))


def test_causal_bert_is_recorded_as_causal_with_an_empty_upper_triangle() -> None:
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=61, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
        max_position_embeddings=40, initializer_range=0.6, is_decoder=True,
    )  # fmt: skip
    model = BertModel(config).eval()
    inputs = {"input_ids": ids((2, 8)), "attention_mask": torch.tensor([[1] * 8, [0] * 3 + [1] * 5])}
    recording = regard.record(model, inputs)
    assert recording.kinds == ("causal",)
    assert worst(recording, own_weights(model, inputs)) < TOLERANCE
    for item in range(2):
        assert recording.weights(layer=1, item=item).triu(1).count_nonzero() == 0


def test_half_precision_weights_are_recomputed_in_float32(tiny_bert: Any) -> None:
    inputs = {"input_ids": ids((1, 8))}
    model = tiny_bert.to(torch.bfloat16)
    recording = regard.record(model, inputs)
    weights = recording.weights(layer=0)
    assert weights.dtype == torch.float32
    assert recording.proof.max_error < 0.05
    torch.testing.assert_close(weights.sum(-1), torch.ones(4, 8))
    # bfloat16 keeps 8 bits: the model's own weights are rounded to 1/256.
    assert (weights - own_weights(model, inputs)[0][0].float()).abs().max() < 0.05


def test_the_output_of_the_model_is_the_same_to_the_last_bit(minilm: Any) -> None:
    inputs = minilm.tokenizer("A small text.", return_tensors="pt")
    with torch.no_grad():
        plain = minilm.model(**inputs).last_hidden_state
        with regard.Recorder(minilm):
            recorded = minilm.model(**inputs).last_hidden_state
    assert torch.equal(plain, recorded)
