"""Models with a softmax of their own are recorded in a block too: run once more, if that is the same run."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

import regard
from regard.errors import InvalidArgument, NothingToRecord, UnfaithfulRecording

FAMILIES: dict[str, dict[str, Any]] = {  # the attention of every other layer of GPT-Neo has a window
    "Bloom": {"hidden_size": 32, "n_layer": 2, "n_head": 4},
    "Mpt": {"d_model": 32, "n_heads": 4, "n_layers": 2, "max_seq_len": 64},
    "GPTNeo": {
        "hidden_size": 32,
        "num_layers": 2,
        "num_heads": 4,
        "max_position_embeddings": 64,
        "window_size": 4,
        "attention_types": [[["global", "local"], 1]],
    },
}
IDS = torch.randint(3, 60, (2, 9), generator=torch.Generator().manual_seed(0))


def build(family: str, head: str = "ForCausalLM", **changes: Any) -> Any:
    torch.manual_seed(0)
    usual = {"vocab_size": 61, "eos_token_id": None, "pad_token_id": 0, "bos_token_id": 1}
    config = getattr(transformers, f"{family}Config")(**{**usual, **FAMILIES.get(family, {}), **changes})
    model = getattr(transformers, f"{family}{head}")(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, 0.3)
    return model


def deberta() -> Any:
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    return build("Deberta", "Model", **sizes)


def rows_of_steps(returned: Any, layer: int, row: int = 0) -> list[Tensor]:
    """What each step of `generate` said that it gave, one row after another: (heads, keys so far)."""
    rows: list[Tensor] = []
    for step in returned.attentions:
        weights = step[layer][row]
        start = len(rows) if weights.shape[1] > 1 else 0  # a step without a cache gives all rows
        rows.extend(weights[:, i, : len(rows) + 1] for i in range(start, weights.shape[1]))
    return rows


@pytest.mark.parametrize("family", FAMILIES)
def test_a_call_in_a_block_is_recorded_by_asking_once_more(family: str) -> None:
    model = build(family)
    with torch.no_grad():
        plain = model(IDS).logits
        own = model(IDS, output_attentions=True).attentions
        with regard.Recorder(model) as recorder:
            during = model(IDS).logits
    assert torch.equal(plain, during)
    recording = recorder.recording
    assert recording.provenance.doors == ("returned",)
    assert "run a second time" in " ".join(recording.provenance.notes)
    assert recording.tokens(1).ids == tuple(IDS[1].tolist())
    for layer in (0, 1):
        torch.testing.assert_close(recording.weights(layer=layer, item=1), own[layer][1])
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


@pytest.mark.parametrize("family", FAMILIES)
def test_generation_is_one_matrix_whose_rows_are_those_of_the_steps(family: str) -> None:
    model, prompt = build(family), IDS[:1]
    options: dict[str, Any] = {"max_new_tokens": 6, "do_sample": False, "return_dict_in_generate": True}
    steps = model.generate(prompt, **options, output_attentions=True)
    with regard.Recorder(model) as recorder:
        returned = model.generate(prompt, **options)
    recording = recorder.recording
    assert torch.equal(returned.sequences, steps.sequences)
    assert recording.tokens().ids == tuple(returned.sequences[0, :-1].tolist())
    assert recording.kinds == ("causal",)
    for layer in (0, 1):
        weights = recording.weights(layer=layer)
        assert weights.shape == (4, 14, 14)
        assert weights.triu(1).count_nonzero() == 0
        for i, expected in enumerate(rows_of_steps(steps, layer)):
            torch.testing.assert_close(weights[:, i, : i + 1], expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_items_padded_on_the_left_that_end_early_are_shown_each_at_its_length(family: str) -> None:
    model = build(family)
    mask = torch.ones_like(IDS)
    mask[1, :4] = 0
    ids = IDS.masked_fill(mask == 0, 0)
    free = model.generate(ids, attention_mask=mask, max_new_tokens=6, do_sample=False)
    end = int(free[1, 11])
    with regard.Recorder(model) as recorder:
        returned = model.generate(
            ids, attention_mask=mask, max_new_tokens=6, do_sample=False, eos_token_id=end
        )
    recording = recorder.recording
    length = 9 + returned[1, 9:].tolist().index(end)
    assert recording.tokens(1).ids == tuple(returned[1, 4:length].tolist())
    with torch.no_grad():
        alone = model(returned[1:, 4:length], output_attentions=True).attentions
    assert recording.kinds == ("causal",)
    for layer in (0, 1):
        weights = recording.weights(layer=layer, item=1)
        torch.testing.assert_close(weights, alone[layer][0], rtol=0, atol=1e-5)


def test_the_best_beam_is_shown_or_another() -> None:
    model = build("Bloom")
    options = {"num_beams": 3, "num_return_sequences": 2, "max_new_tokens": 5, "do_sample": False}
    for sequence in (0, 1):
        with regard.Recorder(model, sequence=sequence) as recorder:
            returned = model.generate(IDS, **options)
        for item in (0, 1):
            read = returned[2 * item + sequence, :-1]
            assert recorder.recording.tokens(item).ids == tuple(read.tolist())
            with torch.no_grad():
                own = model(read[None], output_attentions=True).attentions
            torch.testing.assert_close(
                recorder.recording.weights(layer=1, item=item), own[1][0], rtol=0, atol=1e-5
            )
    with (
        pytest.raises(InvalidArgument, match=r"sequence must lie in \[0, 2\)"),
        regard.Recorder(model, sequence=2),
    ):
        model.generate(IDS, **options)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_loop_of_ones_own_is_one_recording(family: str) -> None:
    model = build(family)
    with regard.Recorder(model) as recorder, torch.no_grad():
        cache = model(IDS[:, :5], use_cache=True).cache
        for i in range(5, 9):
            model(IDS[:, i : i + 1], cache=cache, use_cache=True)
    with torch.no_grad():
        own = model(IDS, output_attentions=True).attentions
    assert recorder.recording.tokens(1).ids == tuple(IDS[1].tolist())
    for layer in (0, 1):
        weights = recorder.recording.weights(layer=layer, item=1)
        torch.testing.assert_close(weights, own[layer][1], rtol=0, atol=1e-5)


def test_record_generates_with_such_a_model_too() -> None:
    model = build("Mpt")
    recording = regard.record(model, IDS[:1], generate=4)
    assert recording.shape(0) == (4, 12, 12)
    assert recording.tokens().ids[:9] == tuple(IDS[0].tolist())


def test_in_training_with_dropout_there_is_no_second_run() -> None:
    model = deberta().train()
    with (
        pytest.raises(NothingToRecord, match=r"dropout, and no two such runs are alike. Call model.eval"),
        regard.Recorder(model),
    ):
        model(IDS)


def test_a_training_step_without_dropout_is_recorded_and_its_gradients_stay() -> None:
    model = build("Bloom", attention_dropout=0.0, hidden_dropout=0.0).train()

    def gradients() -> list[Tensor]:
        model.zero_grad()
        model(IDS, labels=IDS).loss.backward()
        return [p.grad.clone() for p in model.parameters() if p.grad is not None]

    plain = gradients()
    with regard.Recorder(model) as recorder:
        recorded = gradients()
    assert all(torch.equal(a, b) for a, b in zip(plain, recorded, strict=True))
    assert all(module.training for module in model.modules())
    assert recorder.recording.shape(1, item=1) == (4, 9, 9)


def test_what_was_changed_before_the_second_run_is_not_shown_as_the_first() -> None:
    model, ids = build("Bloom"), IDS.clone()

    def run_and(change: Any) -> None:
        with regard.Recorder(model), torch.no_grad():
            model(ids)
            change()

    for change in (lambda: ids.zero_(), lambda: next(model.parameters()).mul_(2)):
        with pytest.raises(NothingToRecord, match="parameters or inputs were changed after the first run"):
            run_and(change)


def test_a_second_run_that_gives_something_else_is_refused() -> None:
    model, runs = deberta(), []
    model.register_forward_pre_hook(
        lambda module, args, kwargs: (args, {**kwargs, "input_ids": IDS.roll(len(runs), 0)}),
        with_kwargs=True,
    )
    model.register_forward_hook(lambda *_: runs.append(1))
    with (
        pytest.raises(UnfaithfulRecording, match="the second run did not give what the first one gave"),
        regard.Recorder(model),
        torch.no_grad(),
    ):
        model(input_ids=IDS)


def test_a_model_that_draws_by_chance_draws_the_same_again() -> None:
    model = deberta()
    model.embeddings.register_forward_hook(lambda module, args, out: out + torch.randn_like(out))
    with regard.Recorder(model) as recorder, torch.no_grad():
        model(IDS)
    assert recorder.recording.shape(0) == (4, 9, 9)


def test_chance_goes_on_after_the_block_as_it_would_have() -> None:
    model = build("Bloom")
    torch.manual_seed(3)
    with regard.Recorder(model), torch.no_grad():
        model(IDS)
    after = torch.rand(3)
    torch.manual_seed(3)
    assert torch.equal(after, torch.rand(3))


def test_the_second_run_of_one_recorder_is_not_heard_by_another() -> None:
    model = build("Bloom")
    with torch.no_grad(), regard.Recorder(model) as outer, regard.Recorder(model) as inner:
        model(IDS)
    assert torch.equal(outer.recording.weights(layer=1), inner.recording.weights(layer=1))


def test_steps_of_a_model_that_reads_both_ways_are_not_one_pass() -> None:
    model = build("XLNet", "LMHeadModel", d_model=32, n_layer=2, n_head=4, d_inner=48)
    with pytest.raises(NothingToRecord, match="would have to be run a second time"), regard.Recorder(model):
        model.generate(IDS[:1], max_new_tokens=3, do_sample=False)


def test_a_beam_that_ended_early_without_a_cache_is_read_once_more() -> None:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=61, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, initializer_range=0.3, pad_token_id=0, eos_token_id=None,
    )  # fmt: skip
    model, prompt = transformers.LlamaForCausalLM(config).eval(), IDS[:1]
    options: dict[str, Any] = {"max_new_tokens": 12, "num_beams": 4, "do_sample": False, "use_cache": False}
    end = int(model.generate(prompt, **options)[0, 9 + 4])
    with regard.Recorder(model) as recorder:
        returned = model.generate(prompt, **options, eos_token_id=end, length_penalty=-2.0)
    recording = recorder.recording
    length = 9 + returned[0, 9:].tolist().index(end)
    assert recording.tokens().ids == tuple(returned[0, :length].tolist())
    assert "read once more" in " ".join(recording.provenance.notes)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        own = model(returned[:, :length], output_attentions=True).attentions
    for layer in range(3):
        torch.testing.assert_close(recording.weights(layer=layer), own[layer][0], rtol=0, atol=1e-5)
    assert recording.proof.rows > 0


def test_tokens_that_were_written_are_marked_and_the_choice_of_heads_holds() -> None:
    model = build("Bloom")
    recording = regard.record(model, IDS[:1], generate=4, layers=[1], heads=[0, 3])
    assert [site.layer for site in recording.sites] == [1]
    assert recording.sequences["text"].written == (9,)
    with torch.no_grad():
        own = model(torch.tensor([recording.tokens().ids]), output_attentions=True).attentions[1][0]
    torch.testing.assert_close(recording.weights(layer=1), own[[0, 3]], rtol=0, atol=1e-5)
