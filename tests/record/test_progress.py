"""What takes long says how far it is, may be ended from there, and leaves the recording whole."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import pytest
import torch

import regard
from by_hand import recording_of
from regard.attend import tiles
from regard.record.unseen import count_attentions

N = 200


@pytest.fixture
def recording(monkeypatch: pytest.MonkeyPatch) -> Any:
    """200 tokens, of which a strip holds sixteen rows."""
    monkeypatch.setattr(tiles, "_STRIP", 1)
    monkeypatch.setattr(tiles, "_TILE_ROWS", 16)
    return recording_of(["x"] * N, causal_from=1, sharpness=1.0)


class Told(list[tuple[str, int, int]]):
    """A Progress that remembers, and raises at its call number `end`."""

    def __init__(self, end: int | None = None, error: type[BaseException] = RuntimeError) -> None:
        self.end, self.error = end, error

    def __call__(self, what: str, done: int, total: int) -> None:
        self.append((what, done, total))
        if len(self) == self.end:
            raise self.error


WORK = {
    "overview": lambda recording, told: recording.overview(layer=1, head=2, size=20, progress=told),
    "top_k": lambda recording, told: recording.top_k(layer=1, head=2, k=3, progress=told),
    "lse": lambda recording, told: recording.site(1).lse_of(0, slice(0, N), 2, told),
}


@pytest.mark.parametrize("what", WORK)
def test_progress_grows_from_none_to_all_rows(recording: Any, what: str) -> None:
    told = Told()
    WORK[what](recording, told)
    done = [count for _, count, _ in told]
    assert {(kind, total) for kind, _, total in told} == {(what, N)}
    assert done[0] == 0
    assert done[-1] == N
    assert done == sorted(set(done))
    assert len(done) >= N // 20


@pytest.mark.parametrize("what", WORK)
@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_what_raises_ends_the_work_and_what_is_known_stays_known(
    recording: Any, what: str, error: type[BaseException]
) -> None:
    whole = recording_of(["x"] * N, causal_from=1, sharpness=1.0)
    with pytest.raises(error):
        WORK[what](recording, Told(5, error))
    known = recording.site(1)._lse_known[0, 2].clone()
    assert 0 < int(known.sum()) < N
    held = recording.site(1)._lse[0, 2][known]
    torch.testing.assert_close(held, whole.site(1).lse[0, 2][known], atol=1e-5, rtol=0)
    told = Told()
    site = recording.site(1)
    site.lse_of(0, slice(0, N), 2, told)
    assert told[-1][2] == N - int(known.sum()), "what was known is computed again"
    ours, theirs = (WORK[what](r, Told()) for r in (recording, whole))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=0)


def test_control_c_ends_it_between_two_tiles(recording: Any) -> None:
    def interrupt(what: str, done: int, total: int) -> None:
        if done:
            os.kill(os.getpid(), signal.SIGINT)

    assert threading.current_thread() is threading.main_thread()
    with pytest.raises(KeyboardInterrupt):
        recording.overview(layer=0, head=0, progress=interrupt)
    assert not bool(recording.site(0)._lse_known[0, 0].all())
    assert recording.overview(layer=0, head=0).isfinite().all()


@pytest.mark.parametrize("head", [None, 1])
@pytest.mark.parametrize(
    "row",
    [None, slice(3, 150), slice(190, 2, -7), [5, 199, 0, 5, 6], torch.tensor([198, 1]), [], slice(4, 4)],
)
def test_top_k_of_many_rows_is_that_of_each(recording: Any, row: Any, head: int | None) -> None:
    best = recording.top_k(layer=1, row=row, k=4, head=head)
    chosen = range(N)[row] if isinstance(row, slice) else range(N) if row is None else list(map(int, row))
    shape = (len(chosen), 4) if head is not None else (3, len(chosen), 4)
    assert best.positions.shape == best.weights.shape == shape
    weights = recording.weights(layer=1, head=head, rows=row)
    torch.testing.assert_close(best.weights, weights.topk(4).values, atol=1e-6, rtol=0)
    torch.testing.assert_close(weights.gather(-1, best.positions), best.weights, atol=1e-6, rtol=0)
    for at, one in enumerate(chosen[:3]):
        single = recording.top_k(layer=1, row=int(one), k=4, head=head)
        torch.testing.assert_close(single.weights, best.weights[..., at, :], atol=1e-6, rtol=0)
        assert single.positions.shape == (*shape[:-2], 4)


def test_scattered_rows_are_taken_in_pieces_that_lie_close_together(recording: Any) -> None:
    told = Told()
    recording.top_k(layer=0, head=0, row=[0, 199, 1, 2, 3, 198], progress=told)
    assert [done for _, done, _ in told] == [0, 1, 2, 5, 6]
    assert int(recording.site(0)._lse_known[0, 0].sum()) == 6


def llama(**changes: Any) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=50, eos_token_id=None, **{**sizes, **changes})).eval()


IDS = torch.arange(5)[None]


def test_a_recording_tells_of_each_attention_heard() -> None:
    model, told = llama(), Told()
    recording = regard.record(model, {"input_ids": IDS}, progress=told)
    assert told == [("recording", heard, 3) for heard in (0, 1, 2, 3)]
    assert torch.equal(recording.site(2).query, regard.record(model, {"input_ids": IDS}).site(2).query)


def test_attentions_are_counted_once_where_one_module_wraps_another(tiny_bert: Any, tiny_albert: Any) -> None:
    assert count_attentions(tiny_bert) == 3
    told = Told()
    regard.record(tiny_albert, {"input_ids": IDS + 5}, progress=told)  # one module, which runs three times
    assert told[-1][1:] == (3, 3)


def test_attentions_that_do_not_run_are_not_waited_for() -> None:
    class Half(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = (torch.nn.MultiheadAttention(8, 2, batch_first=True) for _ in range(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.used(x, x, x, need_weights=False)[0]

    told = Told()
    regard.record(Half().eval(), torch.randn(1, 4, 8), progress=told)
    assert told == [("recording", 0, 2), ("recording", 1, 2), ("recording", 1, 1)]


def test_calls_of_one_block_go_on_counting() -> None:
    model, told = llama(), Told()
    with regard.Recorder(model, progress=told), torch.no_grad():
        model(IDS, use_cache=False)
        model(IDS, use_cache=False)
    assert told[3:6] == [("recording", 3, 3), ("recording", 3, 6), ("recording", 4, 6)]
    assert told[-1] == ("recording", 6, 6)


def test_generation_tells_of_the_text_and_then_of_each_token() -> None:
    told = Told()
    regard.record(llama(), {"input_ids": IDS}, generate=4, progress=told)
    assert told[:4] == [("recording", heard, 3) for heard in (0, 1, 2, 3)]
    assert told[4:] == [("generating", written, 4) for written in (1, 2, 3, 4)]


def test_a_generation_that_ends_early_says_so_and_one_without_a_limit_promises_nothing() -> None:
    model, told = llama(), Told()
    end = int(model.generate(IDS, max_new_tokens=2, do_sample=False)[0, -1])
    options = {"max_new_tokens": 9, "do_sample": False, "eos_token_id": end, "pad_token_id": 0}
    regard.record(model, {"input_ids": IDS}, generate=options, progress=told)
    assert told[-2][2] == 9
    assert told[-1][1] == told[-1][2] <= 2
    told = Told()
    model.generation_config.max_new_tokens = None
    regard.record(model, {"input_ids": IDS}, generate={"max_length": 8, "do_sample": False}, progress=told)
    assert told[4:] == [("generating", 1, 0), ("generating", 2, 0), ("generating", 3, 3)]


@pytest.mark.parametrize("end", [1, 3, 5])
def test_what_progress_raises_ends_the_run_and_leaves_the_model_as_it_was(end: int) -> None:
    model = llama()
    before = vars(model).keys()
    with pytest.raises(ZeroDivisionError):
        regard.record(model, {"input_ids": IDS}, generate=4, progress=Told(end, ZeroDivisionError))
    assert vars(model).keys() == before
    assert not model._forward_hooks
    assert not model._forward_pre_hooks
    assert regard.record(model, {"input_ids": IDS}).proof.rows > 0


def test_an_encoder_counts_among_the_attentions_of_its_decoder() -> None:
    from transformers import T5Config, T5ForConditionalGeneration

    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 2, "num_heads": 2, "vocab_size": 30}
    model = T5ForConditionalGeneration(T5Config(**sizes, decoder_start_token_id=0)).eval()
    told = Told()
    regard.record(model, {"input_ids": IDS + 1}, generate=3, progress=told)
    assert [t for t in told if t[0] == "recording"] == [
        ("recording", 1, 6),
        ("recording", 2, 6),
        *[("recording", heard, 6) for heard in range(2, 7)],
    ]
    assert told[-1][0] == "generating"
