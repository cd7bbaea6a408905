"""Generation gives one matrix per head: row i is what the step that read token i gave."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    DynamicCache,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

import regard
from regard.errors import InvalidArgument, NothingToRecord, UnfaithfulRecording
from regard.record import course, stitch
from regard.record import recorder as recorder_file
from regard.record.generation import Position
from regard.show.payload import payload

TOLERANCE = 1e-5  # two float32 ways to the same softmax, cached and not
SIZES: dict[str, Any] = {
    "vocab_size": 61, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128,
    "initializer_range": 0.3, "pad_token_id": 0, "eos_token_id": 2, "bos_token_id": 1,
}  # fmt: skip


def llama(**changes: Any) -> Any:
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**{**SIZES, **changes})).eval()


def mistral(window: int = 6) -> Any:
    torch.manual_seed(0)
    return MistralForCausalLM(MistralConfig(**SIZES, sliding_window=window)).eval()


def prompt(items: int = 1, length: int = 9, seed: int = 3) -> Tensor:
    return torch.randint(3, 60, (items, length), generator=torch.Generator().manual_seed(seed))


def own_weights(model: Any, ids: Tensor, mask: Tensor | None = None) -> tuple[Tensor, ...]:
    """What the model's eager attention gives, when it reads everything in one call."""
    kept = torch.ones_like(ids) if mask is None else mask
    positions = (kept.cumsum(1) - 1).clamp(min=0)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        given: tuple[Tensor, ...] = model(
            ids, attention_mask=kept, position_ids=positions, output_attentions=True, use_cache=False
        ).attentions
    model.set_attn_implementation("sdpa")
    return given


def agrees(recording: regard.Recording, model: Any, ids: Tensor, item: int = 0, start: int = 0) -> None:
    """The recording of an item is what its tokens, read in one call, give in every layer and head."""
    ids = ids[None, start:]
    assert recording.tokens(item).ids == tuple(ids[0].tolist())
    for layer, expected in enumerate(own_weights(model, ids)):
        weights = recording.weights(layer=layer, item=item)
        assert weights.shape == expected[0].shape
        assert (weights - expected[0]).abs().max() < TOLERANCE
        assert weights.triu(1).count_nonzero() == 0
    assert recording.kinds == ("causal",)
    assert recording.proof.rows > 0
    assert recording.proof.max_error < TOLERANCE


def generate(model: Any, ids: Tensor, sequence: int = 0, **options: Any) -> tuple[Tensor, regard.Recording]:
    options = {"max_new_tokens": 12, "do_sample": False, "eos_token_id": None, **options}
    with regard.Recorder(model, sequence=sequence) as recorder, torch.no_grad():
        returned = model.generate(ids, **options)
    return returned, recorder.recording


@pytest.mark.parametrize("make", [llama, mistral])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"cache_implementation": "static"},
        {"use_cache": False},
        {"prefill_chunk_size": 4},
        {"prefill_chunk_size": 4, "cache_implementation": "static"},
    ],
)
def test_generation_is_one_lower_triangular_matrix(make: Any, options: dict[str, Any]) -> None:
    model = make()
    returned, recording = generate(model, prompt(), **options)
    assert returned.shape == (1, 21)
    agrees(recording, model, returned[0, :-1])  # the last token was written and never read


def test_the_output_is_the_same_to_the_last_bit_and_nothing_stays_changed() -> None:
    model = llama()
    before = dict(vars(model))
    options = {
        "max_new_tokens": 8,
        "output_scores": True,
        "return_dict_in_generate": True,
        "do_sample": False,
    }
    plain = model.generate(prompt(), **options)
    with regard.Recorder(model):
        recorded = model.generate(prompt(), **options)
    assert torch.equal(plain.sequences, recorded.sequences)
    assert all(torch.equal(a, b) for a, b in zip(plain.scores, recorded.scores, strict=True))
    assert vars(model).keys() == before.keys()
    assert "reorder_cache" not in vars(recorded.cache)
    assert not model._forward_hooks
    assert not model._forward_pre_hooks


@pytest.mark.parametrize("make", [llama, mistral])
@pytest.mark.parametrize("options", [{}, {"cache_implementation": "static"}])
def test_a_batch_padded_on_the_left_is_shown_item_by_item(make: Any, options: dict[str, Any]) -> None:
    model, ids = make(), prompt(3)
    mask = torch.ones_like(ids)
    mask[0, :5] = mask[2, :2] = 0
    ids = ids.masked_fill(mask == 0, 0)
    returned, recording = generate(model, ids, attention_mask=mask, **options)
    assert recording.items == 3
    for item, start in enumerate((5, 0, 2)):
        agrees(recording, model, returned[item, :-1], item, start)


@pytest.mark.parametrize("make", [llama, mistral])
@pytest.mark.parametrize("options", [{}, {"cache_implementation": "static"}, {"num_beams": 2}])
def test_masks_too_large_to_keep_are_found_to_be_the_usual_rules(
    make: Any, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stitch, "_DENSE", 0)
    model, ids = make(), prompt(3)
    mask = torch.ones_like(ids)
    mask[0, :5] = mask[2, :2] = 0
    ids = ids.masked_fill(mask == 0, 0)
    returned, recording = generate(model, ids, attention_mask=mask, **options)
    assert "dense" not in repr(recording.site(0).mask)
    assert "key_mask" in repr(recording.site(0).mask)
    for item, start in enumerate((5, 0, 2)):
        agrees(recording, model, returned[item, :-1], item, start)


def test_sinks_of_queries_are_put_together_as_their_queries_are() -> None:
    whole = torch.randn(2, 4, 7)
    parts = ((0, 4), (4, 6), (6, 7))
    calls: list[Any] = [
        SimpleNamespace(sinks=whole[:, :, a:b], query=whole[:, :, a:b, None], position=Position(a, a, 0, b))
        for a, b in parts
    ]
    rows = (torch.tensor([1, 0]), torch.tensor([1, 0]), torch.tensor([1, 0]))
    together = stitch._row_sinks(calls, [4, 2, 1], stitch.Chosen(rows, (7, 7), None))
    assert together is not None
    assert torch.equal(together, whole[[1, 0]])
    of_heads: list[Any] = [SimpleNamespace(sinks=torch.randn(4))]
    assert stitch._row_sinks(of_heads, [4], stitch.Chosen(rows[:1], (4, 4), None)) is None


def test_a_mask_too_large_to_keep_that_follows_no_rule_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stitch, "_DENSE", 0)
    model, ids = llama(), prompt(1, 8)
    holes = torch.ones(8, 8).tril().bool()
    holes[5, 1] = holes[7, 3] = False
    refused = pytest.raises(NothingToRecord, match="its mask over 8 positions follows no rule")
    with refused, regard.Recorder(model), torch.no_grad():
        cache = DynamicCache()
        model(ids[:, :6], attention_mask=holes[None, None, :6, :6], cache=cache)
        model(ids[:, 6:], attention_mask=holes[None, None, 6:], cache=cache)


def test_an_item_that_ends_early_has_no_rows_for_the_padding_after_it() -> None:
    model, ids = llama(), prompt(2)
    free = model.generate(ids, max_new_tokens=12, do_sample=False, eos_token_id=None)
    end = next(token for token in free[1, 11:].tolist() if token not in free[0, 9:].tolist())
    returned, recording = generate(model, ids, eos_token_id=end)
    agrees(recording, model, returned[0, :-1], 0)
    length = 9 + free[1, 9:].tolist().index(end)
    agrees(recording, model, returned[1, :length], 1)


@pytest.mark.parametrize("options", [{}, {"cache_implementation": "static"}])
@pytest.mark.parametrize("sequence", [0, 2])
def test_beams_are_followed_back_from_the_one_that_was_returned(options: Any, sequence: int) -> None:
    model = llama()
    returned, recording = generate(model, prompt(2), sequence, num_beams=4, num_return_sequences=3, **options)
    assert returned.shape[0] == 6
    assert recording.items == 2
    for item in range(2):
        agrees(recording, model, returned[3 * item + sequence, :-1], item)


def test_a_beam_that_ended_early_is_found_where_it_ended() -> None:
    model = llama()
    free = model.generate(prompt(), max_new_tokens=12, num_beams=4, do_sample=False, eos_token_id=None)
    end = int(free[0, 9 + 4])
    returned, recording = generate(model, prompt(), num_beams=4, eos_token_id=end, length_penalty=-2.0)
    assert int(returned[0, -1]) == end or end in returned[0].tolist()
    length = 9 + returned[0, 9:].tolist().index(end)
    agrees(recording, model, returned[0, :length])


def test_a_sequence_that_was_not_returned_is_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"sequence must lie in \[0, 1\)"):
        generate(llama(), prompt(), 1)


def test_samples_of_one_prompt_are_told_apart() -> None:
    model = llama()
    torch.manual_seed(1)
    returned, recording = generate(model, prompt(), 1, do_sample=True, num_return_sequences=3, top_k=0)
    agrees(recording, model, returned[1, :-1])


def test_speculative_decoding_shows_what_was_kept() -> None:
    model, assistant = llama(), llama(num_hidden_layers=1)
    returned, recording = generate(model, prompt(), assistant_model=assistant)
    agrees(recording, model, returned[0, :-1])


def test_a_loop_of_ones_own_over_one_cache_is_one_recording() -> None:
    model, ids = llama(), prompt(2, 12)
    with regard.Recorder(model) as recorder, torch.no_grad():
        cache = model(ids[:, :5]).cache
        model(ids[:, 5:6], cache=cache)
        model(ids[:, 6:], cache=cache)
    for item in range(2):
        agrees(recorder.recording, model, ids[item], item)


def test_two_generations_in_one_block_are_two_recordings() -> None:
    model = llama()
    with regard.Recorder(model) as recorder:
        for seed in (3, 4):
            model.generate(prompt(seed=seed), max_new_tokens=3, do_sample=False, eos_token_id=None)
    assert len(recorder.recordings) == 2
    assert recorder.recordings[1].tokens().ids[:9] == tuple(prompt(seed=4)[0].tolist())


def test_rows_before_a_recorder_came_are_empty() -> None:
    model, ids = llama(), prompt(1, 10)
    with torch.no_grad():
        cache = model(ids[:, :6]).cache
        with regard.Recorder(model) as recorder:
            model(ids[:, 6:8], cache=cache)
            model(ids[:, 8:], cache=cache)
    for layer, expected in enumerate(own_weights(model, ids)):
        weights = recorder.recording.weights(layer=layer)
        assert weights[:, :6].count_nonzero() == 0
        assert (weights[:, 6:] - expected[0][:, 6:]).abs().max() < TOLERANCE
    assert "The first 6 rows are empty" in " ".join(recorder.recording.provenance.notes)


def test_only_new_keys_are_kept_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    model = llama()
    kept: list[int] = []

    class Counting(course.Course):
        def end_generation(self, *args: Any) -> None:
            (run,) = self.runs
            assert run.chain is not None
            kept.extend(h.key.untyped_storage().nbytes() for s in run.chain.steps for h in s.heard)
            super().end_generation(*args)

    monkeypatch.setattr(recorder_file, "Course", Counting)
    with regard.Recorder(model):
        model.generate(prompt(), max_new_tokens=30, do_sample=False, eos_token_id=None)
    assert sum(kept) == 3 * (9 + 29) * 2 * 8 * 4  # layers × tokens × key heads × channels × bytes


def test_a_cache_that_changes_old_keys_is_refused() -> None:
    model, ids = llama(), prompt(1, 10)

    def run() -> None:
        cache = DynamicCache()
        with regard.Recorder(model), torch.no_grad():
            for i in range(10):
                model(ids[:, i : i + 1], cache=cache)
                if i == 6:
                    cache.layers[1].keys = cache.layers[1].keys * 2

    with pytest.raises(UnfaithfulRecording, match=r"layers\.1\.self_attn: the cache does not keep"):
        run()


def test_a_model_that_raises_in_a_step_leaves_nothing_changed() -> None:
    model = llama()
    calls = []

    def fail(*_: Any) -> None:
        calls.append(1)
        if len(calls) == 4:
            raise RuntimeError("in the middle")

    handle = model.model.layers[1].register_forward_pre_hook(fail)
    with pytest.raises(RuntimeError, match="in the middle"), regard.Recorder(model):
        model.generate(prompt(), max_new_tokens=12, do_sample=False)
    handle.remove()
    assert "generate" not in vars(model)
    assert not model._forward_hooks


@pytest.mark.parametrize("beams", [1, 3])
def test_an_encoder_and_the_steps_of_its_decoder_are_one_recording(beams: int) -> None:
    torch.manual_seed(0)
    model = T5ForConditionalGeneration(
        T5Config(
            vocab_size=61, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4,
            decoder_start_token_id=0, initializer_factor=1.0,
        )
    ).eval()  # fmt: skip
    ids, mask = prompt(2), torch.ones(2, 9, dtype=torch.long)
    mask[1, 6:] = 0
    returned, recording = generate(model, ids, attention_mask=mask, num_beams=beams, max_new_tokens=8)
    assert [(s.kind, s.layer) for s in recording.sites if s.kind == "self"] == [("self", 0), ("self", 1)]
    assert sum(site.kind == "cross" for site in recording.sites) == 2
    fed = returned[:, :-1]
    model.set_attn_implementation("eager")
    with torch.no_grad():
        own = model(ids, attention_mask=mask, decoder_input_ids=fed, output_attentions=True)
    for item, length in enumerate((9, 6)):
        for kind, theirs in (("causal", own.decoder_attentions), ("cross", own.cross_attentions)):
            for layer, expected in enumerate(theirs):
                weights = recording.weights(layer=layer, kind=kind, item=item)
                cut = expected[item][..., :length] if kind == "cross" else expected[item]
                assert (weights - cut).abs().max() < TOLERANCE
        for layer, expected in enumerate(own.encoder_attentions):
            weights = recording.weights(layer=layer, kind="self", item=item)
            assert (weights - expected[item][:, :length, :length]).abs().max() < TOLERANCE


def test_a_recording_knows_which_tokens_the_model_wrote() -> None:
    model, ids = llama(), prompt(3)
    mask = torch.ones_like(ids)
    mask[0, :5] = 0
    _, recording = generate(model, ids, attention_mask=mask)
    axis = recording.sequences["text"]
    assert [axis.generated_from(item) for item in range(3)] == [4, 9, 9]
    with regard.Recorder(model) as recorder, torch.no_grad():
        model(ids)
    assert recorder.recording.sequences["text"].generated_from(0) is None
    with regard.Recorder(model) as recorder, torch.no_grad():  # the one token written is never read
        model.generate(ids, attention_mask=mask, max_new_tokens=1, do_sample=False)
    assert recorder.recording.sequences["text"].generated_from(1) is None


def test_what_a_decoder_writes_begins_after_what_it_was_given() -> None:
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 2, "num_heads": 2, "vocab_size": 61}
    model = T5ForConditionalGeneration(T5Config(**sizes, decoder_start_token_id=0)).eval()
    for given, first in (({}, 1), ({"decoder_input_ids": prompt(1, 3)}, 3)):
        with regard.Recorder(model) as recorder:
            model.generate(prompt(), max_new_tokens=6, do_sample=False, eos_token_id=None, **given)
        sequences = recorder.recording.sequences
        assert sequences["target"].generated_from(0) == first
        assert sequences["text"].generated_from(0) is None


def test_a_file_a_page_and_a_figure_know_it_too(tmp_path: Any) -> None:
    _, recording = generate(llama(), prompt(2))
    recording.save(tmp_path / "written.regard")
    opened = regard.open(tmp_path / "written.regard")
    assert opened.sequences["text"].written == (9, 9)
    assert payload(opened, item=1).header["sequences"]["text"]["generated_from"] == 9
    note = regard.heatmap(opened, layer=0, head=0).get_supxlabel()
    assert note.endswith("tokens from position 9 on were written by the model")
    with regard.Recorder(llama()) as recorder, torch.no_grad():
        recorder.subject.model(prompt())
    assert "generated_from" not in payload(recorder.recording).header["sequences"]["text"]
