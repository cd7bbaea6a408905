"""A Recorder leaves the process as it found it, hears its own model and thread only, refuses the unproven."""

from __future__ import annotations

import threading
import weakref
from typing import Any

import pytest
import torch
from transformers.modeling_utils import AttentionInterface

import regard
from regard.errors import InvalidArgument, NothingToRecord, UnfaithfulRecording
from regard.record import interface

IDS = {"input_ids": torch.tensor([[5, 9, 12, 40, 7]])}


@pytest.fixture(autouse=True)
def nothing_stays_changed() -> Any:
    """Around every test: the interface's class and functions are the same after as before."""
    before = dict(vars(AttentionInterface)), dict(AttentionInterface._global_mapping)
    yield
    assert dict(vars(AttentionInterface)) == before[0]
    assert AttentionInterface._global_mapping == before[1]
    assert interface._listeners == ()


def test_a_block_around_any_call_gives_its_recording(tiny_bert: Any) -> None:
    with regard.Recorder(tiny_bert) as recorder, torch.no_grad():
        tiny_bert(**IDS)
    assert recorder.recording.shape(0) == (4, 5, 5)
    assert recorder.recording.tokens().ids == (5, 9, 12, 40, 7)
    assert recorder.recording.tokens().texts == ("5", "9", "12", "40", "7")
    assert recorder.recording.proof.rows == 3 * 4


def test_several_calls_give_a_recording_each(tiny_bert: Any) -> None:
    with regard.Recorder(tiny_bert) as recorder, torch.no_grad():
        tiny_bert(**IDS)
        tiny_bert(IDS["input_ids"][:, :3])
    assert [one.shape(0)[1] for one in recorder.recordings] == [5, 3]
    with pytest.raises(InvalidArgument, match="the model ran 2 times"):
        _ = recorder.recording


def test_everything_is_restored_when_the_model_raises(tiny_bert: Any) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("in the middle")

    tiny_bert.encoder.layer[1].register_forward_pre_hook(fail)
    with pytest.raises(RuntimeError, match="in the middle"), regard.Recorder(tiny_bert) as recorder:
        tiny_bert(**IDS)
    with pytest.raises(NothingToRecord, match="after the with block"):
        _ = recorder.recording
    assert not tiny_bert._forward_pre_hooks
    tiny_bert.encoder.layer[1]._forward_pre_hooks.clear()
    assert regard.record(tiny_bert, IDS).proof.rows > 0


def test_training_mode_is_restored_module_by_module(tiny_bert: Any) -> None:
    tiny_bert.train()
    tiny_bert.encoder.layer[1].eval()
    before = [module.training for module in tiny_bert.modules()]
    regard.record(tiny_bert, IDS)
    assert [module.training for module in tiny_bert.modules()] == before


def test_nested_recorders_both_hear(tiny_bert: Any) -> None:
    with regard.Recorder(tiny_bert) as outer, torch.no_grad():
        tiny_bert(**IDS)
        with regard.Recorder(tiny_bert) as inner:
            tiny_bert(**IDS)
    assert len(outer.recordings) == 2
    assert torch.equal(inner.recording.weights(layer=1), outer.recordings[1].weights(layer=1))


def test_another_model_in_the_block_is_not_heard(tiny_bert: Any, tiny_albert: Any) -> None:
    with regard.Recorder(tiny_bert) as recorder, torch.no_grad():
        tiny_albert(**IDS)
        tiny_bert(**IDS)
        tiny_albert(**IDS)
    assert len(recorder.recordings) == 1
    assert len(recorder.recording.sites) == 3


def test_threads_record_the_same_model_apart(tiny_bert: Any) -> None:
    lengths = range(2, 18)
    results: dict[int, regard.Recording] = {}
    failures: list[BaseException] = []
    start = threading.Barrier(len(lengths))

    def work(length: int) -> None:
        try:
            start.wait()
            for _ in range(5):
                inputs = {"input_ids": torch.arange(4, 4 + length)[None]}
                results[length] = regard.record(tiny_bert, inputs)
                assert results[length].shape(2) == (4, length, length)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(length,)) for length in lengths]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert {length: len(one.tokens()) for length, one in results.items()} == {n: n for n in lengths}


def test_another_thread_is_heard_only_when_asked_for(tiny_bert: Any) -> None:
    def run_elsewhere() -> None:
        thread = threading.Thread(target=lambda: tiny_bert(**IDS))
        thread.start()
        thread.join()

    with regard.Recorder(tiny_bert, any_thread=True) as recorder:
        run_elsewhere()
    assert recorder.recording.shape(0) == (4, 5, 5)
    with pytest.raises(NothingToRecord, match="did not run in this thread"), regard.Recorder(tiny_bert):
        run_elsewhere()


def test_a_falsified_attention_output_is_refused(tiny_bert: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real = AttentionInterface._global_mapping["sdpa"]
    for change, cause in (
        (lambda output: output * 1.5, "multiplied by 1.5"),
        (lambda output: output * torch.tensor([1.0, 0.5, 2.0, 1.0])[:, None], "factor of its own"),
        (lambda output: output.roll(1, dims=1), "outside of what its attention is called with"),
        (lambda output: output.masked_fill(torch.ones(1, 5, 1, 1).bool(), float("nan")), "not a number"),
    ):

        def falsified(*args: Any, change: Any = change, **kwargs: Any) -> Any:
            output, weights = real(*args, **kwargs)
            return change(output), weights

        monkeypatch.setitem(AttentionInterface._global_mapping, "sdpa", falsified)
        with pytest.raises(UnfaithfulRecording, match=cause) as refused:
            regard.record(tiny_bert, IDS)
        assert "encoder.layer.0.attention.self" in str(refused.value)
    monkeypatch.undo()
    assert regard.record(tiny_bert, IDS).proof.max_error < 1e-5


def test_a_change_that_is_smaller_than_the_weights_are_shown_is_still_refused(
    tiny_bert: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = AttentionInterface._global_mapping["sdpa"]

    def nearly(*args: Any, **kwargs: Any) -> Any:
        output, weights = real(*args, **kwargs)
        return output * 1.002, weights

    monkeypatch.setitem(AttentionInterface._global_mapping, "sdpa", nearly)
    with pytest.raises(UnfaithfulRecording, match="multiplied by 1"):
        regard.record(tiny_bert, IDS)


def test_refusals_are_said_in_french_too(tiny_bert: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from regard import words

    real = AttentionInterface._global_mapping["sdpa"]
    monkeypatch.setitem(
        AttentionInterface._global_mapping, "sdpa", lambda *a, **k: (real(*a, **k)[0] * 2, None)
    )
    words.set_language("fr")
    try:
        with pytest.raises(UnfaithfulRecording, match="ne peut pas être enregistrée fidèlement"):
            regard.record(tiny_bert, IDS)
    finally:
        words.set_language("en")


def test_dropout_in_training_is_recorded_but_not_called_proven(tiny_bert: Any) -> None:
    tiny_bert.train()
    with regard.Recorder(tiny_bert) as recorder:
        loss = tiny_bert(**IDS).last_hidden_state.square().sum()
        loss.backward()
    proof = recorder.recording.proof
    assert proof.rows == 0
    assert "dropout" in proof.note
    # Weights are before dropout: rows still sum to 1.
    torch.testing.assert_close(recorder.recording.weights(layer=2).sum(-1), torch.ones(4, 5))
    assert not recorder.recording.site(0).query.requires_grad


def test_gradients_are_the_same_with_and_without_a_recorder(tiny_bert: Any) -> None:
    def gradients() -> list[torch.Tensor]:
        tiny_bert.zero_grad()
        tiny_bert(**IDS).last_hidden_state.square().sum().backward()
        return [p.grad.clone() for p in tiny_bert.parameters() if p.grad is not None]

    plain = gradients()
    with regard.Recorder(tiny_bert):
        recorded = gradients()
    assert all(torch.equal(a, b) for a, b in zip(plain, recorded, strict=True))


def test_the_pass_that_gradient_checkpointing_repeats_is_not_recorded_twice(tiny_bert: Any) -> None:
    names = ("activation_checkpointing_enable", "gradient_checkpointing_enable")  # new and old name
    next(getattr(tiny_bert, name) for name in names if hasattr(tiny_bert, name))()
    tiny_bert.train()
    with regard.Recorder(tiny_bert) as recorder:
        tiny_bert(**IDS).last_hidden_state.square().sum().backward()
    assert len(recorder.recording.sites) == 3


def test_queries_changed_after_use_are_refused(tiny_bert: Any) -> None:
    changed = []

    def spoil(module: Any, args: Any, output: Any) -> None:
        changed.append(True)
        recorder._course.runs[-1].heard[0].query.mul_(2)

    tiny_bert.encoder.layer[0].register_forward_hook(spoil)
    with (
        pytest.raises(UnfaithfulRecording, match="changed its queries, keys or mask"),
        torch.no_grad(),
        regard.Recorder(tiny_bert) as recorder,
    ):
        tiny_bert(**IDS)
    assert changed


def test_a_model_without_observable_attention_is_refused() -> None:
    linear = torch.nn.Linear(3, 3)
    with pytest.raises(NothingToRecord, match="Linear has no attention to record"), regard.Recorder(linear):
        linear(torch.zeros(1, 3))


def test_a_recorder_serves_one_block(tiny_bert: Any) -> None:
    with regard.Recorder(tiny_bert) as recorder:
        tiny_bert(**IDS)
    with pytest.raises(InvalidArgument, match="serves one block"), recorder:
        pass
    with pytest.raises(InvalidArgument, match=r"must be a Subject or a torch\.nn\.Module; got str"):
        regard.Recorder("bert")  # type: ignore[arg-type]


def test_no_rows_means_no_proof_and_says_so(tiny_bert: Any) -> None:
    recording = regard.record(tiny_bert, IDS, rows=0)
    assert recording.proof.rows == 0
    assert recording.proof.max_error != recording.proof.max_error
    assert "Not checked" in recording.proof.note


def test_a_recorder_is_free_when_nobody_holds_it(tiny_bert: Any) -> None:
    with torch.no_grad(), regard.Recorder(tiny_bert) as recorder:
        tiny_bert(torch.arange(2, 8)[None])
    assert recorder.recording.layers == (0, 1, 2)
    alive = weakref.ref(recorder)
    del recorder
    assert alive() is None
