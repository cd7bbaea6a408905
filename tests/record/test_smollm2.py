"""A real Llama: every head of every layer as its own eager attention gives it; nothing is changed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import regard
from regard.errors import InvalidArgument

TEXT = (
    "The history of writing begins with marks in clay: who owes how much barley to whom, in 3300 BC. "
    "Later came names, prayers, laws, and letters home; été, naïve, 東京 and 🙂 came much later. "
) * 6


@pytest.fixture(scope="module")
def ids(smollm2: Any) -> Tensor:
    """256 tokens of text."""
    tokens: Tensor = smollm2.tokenizer(TEXT, return_tensors="pt").input_ids[:, :256]
    assert tokens.shape == (1, 256)
    return tokens


def test_it_is_what_the_catalogue_says(smollm2: Any) -> None:
    assert (smollm2.name, smollm2.licence) == ("smollm2", "Apache-2.0")
    config = smollm2.model.config
    assert (config.num_hidden_layers, config.num_attention_heads, config.num_key_value_heads) == (30, 9, 3)
    assert smollm2.model.dtype == torch.float32
    answer = regard.record(smollm2, "What is the capital of France?", chat=True, generate=8)
    assert "".join(answer.tokens().texts).endswith("The capital of France is Paris.")


def test_all_its_heads_equal_eager_and_its_outputs_are_the_same_to_the_last_bit(
    smollm2: Any, ids: Tensor
) -> None:
    model = smollm2.model
    with torch.no_grad():
        plain = model(ids).logits
        with regard.Recorder(smollm2) as recorder:
            recorded = model(ids).logits
        assert torch.equal(plain, recorded)
        model.set_attn_implementation("eager")
        with regard.Recorder(smollm2) as eager:
            own = model(ids, output_attentions=True, use_cache=False).attentions
        model.set_attn_implementation("sdpa")
    assert len(own) == 30
    for layer, expected in enumerate(own):
        weights = eager.recording.weights(layer=layer)
        assert weights.shape == (9, 256, 256)
        assert (weights - expected[0]).abs().max() < 1e-5  # sums in another order
        # The other kernel rounds otherwise, and 30 layers carry that along.
        assert (recorder.recording.weights(layer=layer) - expected[0]).abs().max() < 2e-4
    for recording in (recorder.recording, eager.recording):
        assert recording.proof.max_error < 1e-5
        assert recording.proof.rows == 30 * 4


def test_bytes_are_shown_as_the_characters_that_they_make(smollm2: Any) -> None:
    tokens = regard.record(smollm2, "été 東京 in 1999").tokens()
    assert "".join(tokens.texts).startswith("été ")
    assert not any("Ã" in text or "Ġ" in text for text in tokens.texts)
    assert [text for text in tokens.texts if text.isdigit()] == ["1", "9", "9", "9"]


def test_each_token_that_it_writes_and_reads_is_a_row(smollm2: Any) -> None:
    recording = regard.record(smollm2, "Once upon a time", generate=10)
    tokens = recording.tokens()
    assert tokens.texts[:4] == ("Once", " upon", " a", " time")
    assert len(tokens) == 4 + 10 - 1
    assert tokens.offsets[3] == (11, 16)
    assert tokens.offsets[4] is None
    assert recording.weights(layer=29, head=8).triu(1).count_nonzero() == 0
    whole = regard.record(smollm2, {"input_ids": torch.tensor([tokens.ids])})
    for layer in (0, 15, 29):
        assert (whole.weights(layer=layer) - recording.weights(layer=layer)).abs().max() < 1e-4


def test_several_prompts_are_filled_up_on_the_left_to_generate(smollm2: Any) -> None:
    recording = regard.record(smollm2, ["Once upon a time", "Hello"], generate=5)
    assert recording.tokens(1).texts[0] == "Hello"
    alone = regard.record(smollm2, "Hello", generate=5)
    assert alone.tokens().ids == recording.tokens(1).ids
    assert (alone.weights(layer=7) - recording.weights(layer=7, item=1)).abs().max() < 1e-4


def test_chat_and_generate_are_refused_where_they_cannot_be(minilm: Any) -> None:
    with pytest.raises(InvalidArgument, match="minilm has no chat template"):
        regard.record(minilm, "Hello", chat=True)
    with pytest.raises(InvalidArgument, match="minilm does not write text"):
        regard.record(minilm, "Hello", generate=3)


@pytest.mark.parametrize("generate", [0, -1, True, 2.5])
def test_a_number_of_tokens_that_cannot_be_is_refused(smollm2: Any, generate: Any) -> None:
    with pytest.raises(InvalidArgument, match="generate must be a number of tokens"):
        regard.record(smollm2, "Hello", generate=generate)
