"""Straight to a file while the model runs: the same recording, and nothing complete is lost."""

from __future__ import annotations

import errno
import gc
import os
import signal
import subprocess
import sys
import textwrap
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors import safe_open

import regard
from regard.errors import DamagedFile, InvalidArgument, OutputError, RecordingError, TooLong
from regard.record import filing, store
from regard.record.filing import FileShelf
from regard.record.recorder import Recorder
from sizes import DECODER


@pytest.fixture(scope="module")
def llama() -> Any:
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**DECODER)).eval()


def t5(decoder_layers: int) -> Any:
    torch.manual_seed(0)
    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 4}
    config = transformers.T5Config(
        vocab_size=61, decoder_start_token_id=0, num_decoder_layers=decoder_layers, **sizes
    )
    return transformers.T5ForConditionalGeneration(config).eval()


@pytest.fixture(scope="module")
def padded() -> dict[str, torch.Tensor]:
    ids = torch.randint(2, 61, (2, 11), generator=torch.Generator().manual_seed(0))
    kept = torch.ones_like(ids)
    kept[1, :4] = 0
    return {"input_ids": ids, "attention_mask": kept}


def assert_same(one: Any, other: Any, atol: float = 0.0) -> None:
    assert [(s.name, s.layer, s.kind) for s in one.sites] == [(s.name, s.layer, s.kind) for s in other.sites]
    assert one.sequences == other.sequences
    for site in one.sites:
        for item in range(one.items):
            where = {"site": site.name, "layer": site.layer, "item": item}
            difference = (one.weights(**where) - other.weights(**where)).abs().max()
            assert float(difference) <= atol


@pytest.fixture(params=["in place", "written anew"])
def small(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways in which a file comes to its final form."""
    monkeypatch.setattr(filing, "_SMALL", 0 if request.param == "in place" else 1 << 30)
    monkeypatch.setattr(filing, "_WASTE", 1e9)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("generate", [None, 5, {"max_new_tokens": 5, "num_beams": 3}])
def test_the_file_holds_what_memory_would(
    llama: Any, padded: dict[str, torch.Tensor], generate: Any, tmp_path: Path
) -> None:
    there = regard.record(llama, padded, generate=generate, path=tmp_path / "a.regard")
    assert os.listdir(tmp_path) == ["a.regard"]
    here = regard.record(llama, padded, generate=generate)
    assert_same(there, here)
    assert_same(regard.open(tmp_path / "a.regard"), here)
    assert there.provenance.notes == here.provenance.notes
    assert there.proof.rows == here.proof.rows


@pytest.mark.usefixtures("small")
def test_an_encoder_decoder_with_biases_goes_to_a_file(tmp_path: Path) -> None:
    inputs = {"input_ids": torch.arange(2, 9)[None], "decoder_input_ids": torch.tensor([[0, 5, 6, 7]])}
    model = t5(decoder_layers=3)
    assert_same(regard.record(model, inputs, path=tmp_path / "t5.regard"), regard.record(model, inputs))
    model, text = t5(decoder_layers=2), {"input_ids": inputs["input_ids"]}
    written = regard.record(model, text, generate=4, path=tmp_path / "written.regard")
    assert_same(written, regard.record(model, text, generate=4))


def test_the_file_is_plain_safetensors_and_not_much_larger_than_what_it_holds(
    llama: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filing, "_SMALL", 0)
    monkeypatch.setattr(filing, "_WASTE", 0.5)
    monkeypatch.setattr(store, "save", None)  # which would write it anew
    ids = torch.randint(2, 61, (1, 2000), generator=torch.Generator().manual_seed(1))
    recording = regard.record(llama, ids, path=tmp_path / "long.regard")
    with safe_open(tmp_path / "long.regard", framework="pt") as file:
        assert torch.equal(file.get_tensor("site.3.key"), recording.site(3).key)
    kept = sum(t.numel() * t.element_size() for s in recording.sites for t in (s.query, s.key))
    assert (tmp_path / "long.regard").stat().st_size < 1.3 * kept


def test_main_memory_can_hold_them_instead(llama: Any, padded: dict[str, torch.Tensor]) -> None:
    assert_same(
        regard.record(llama, padded, offload=True, generate=3), regard.record(llama, padded, generate=3)
    )


def test_no_query_or_key_stays_in_memory_while_the_model_runs(
    llama: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[weakref.ref[Any]] = []
    noted = FileShelf.noted

    def watched(self: FileShelf, run: int, heard: Any) -> Any:
        given.extend(weakref.ref(t) for t in (heard.query, heard.key))
        return noted(self, run, heard)

    monkeypatch.setattr(FileShelf, "noted", watched)
    with Recorder(llama, path=tmp_path / "a.regard"), torch.no_grad():
        llama(torch.arange(2, 12)[None])
        gc.collect()
        assert len(given) == 8
        assert not any(reference() is not None for reference in given)


def test_two_calls_give_two_files(llama: Any, tmp_path: Path) -> None:
    with Recorder(llama, path=tmp_path / "a.regard") as recorder, torch.no_grad():
        llama(torch.arange(2, 12)[None])
        llama(torch.arange(2, 8)[None])
    assert sorted(os.listdir(tmp_path)) == ["a-2.regard", "a.regard"]
    lengths = [regard.open(tmp_path / name).shape(layer=0)[1] for name in ("a.regard", "a-2.regard")]
    assert lengths == [r.shape(layer=0)[1] for r in recorder.recordings] == [10, 6]


def test_a_place_that_cannot_be_written_is_refused_before_the_model_runs(llama: Any, tmp_path: Path) -> None:
    ran = []
    handle = llama.register_forward_pre_hook(lambda *_: ran.append(1))
    for place in (tmp_path / "nowhere" / "a.regard", tmp_path):  # the second is a folder
        with pytest.raises(OutputError, match="cannot be written"):
            regard.record(llama, torch.arange(2, 12)[None], path=place)
    handle.remove()
    assert not ran


class Stopped(Exception):
    """What the models here raise."""


def stopping(module: torch.nn.Module, error: BaseException, after: int = 0) -> Any:
    """Let `module` raise at its call number `after`."""
    calls = []

    def hook(*_: Any) -> None:
        calls.append(1)
        if len(calls) > after:
            raise error

    return module.register_forward_pre_hook(hook)


def test_what_was_complete_when_the_model_raised_can_be_opened(
    llama: Any, padded: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    whole = regard.record(llama, padded)
    handle = stopping(llama.model.layers[2], Stopped("here"))
    with pytest.raises(Stopped) as raised:
        regard.record(llama, padded, path=tmp_path / "a.regard")
    handle.remove()
    assert "a.regard.partial holds the 2 calls" in raised.value.__notes__[0]
    with pytest.raises(InvalidArgument, match="Open that one"):
        regard.open(tmp_path / "a.regard")
    rest = regard.open(tmp_path / "a.regard.partial")
    assert [site.layer for site in rest.sites] == [0, 1]
    assert "never finished" in rest.provenance.notes[0]
    assert rest.sites[1].proof == whole.sites[1].proof
    for item in range(2):
        assert torch.equal(rest.weights(layer=1, item=item), whole.weights(layer=1, item=item))
    rest.save(tmp_path / "a.regard")
    assert regard.open(tmp_path / "a.regard").provenance == rest.provenance
    regard.record(llama, padded, path=tmp_path / "a.regard")
    assert os.listdir(tmp_path) == ["a.regard"]


def test_a_model_that_raises_before_its_first_attention_leaves_nothing(llama: Any, tmp_path: Path) -> None:
    handle = stopping(llama.model.layers[0], Stopped("here"))
    with pytest.raises(Stopped) as raised:
        regard.record(llama, torch.arange(2, 12)[None], path=tmp_path / "a.regard")
    handle.remove()
    assert not hasattr(raised.value, "__notes__")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("options", [{}, {"num_beams": 3}])
def test_the_steps_of_a_generation_that_were_complete_can_be_opened(
    llama: Any, padded: dict[str, torch.Tensor], options: dict[str, Any], tmp_path: Path
) -> None:
    handle = stopping(llama.model.layers[2], Stopped("here"), after=4)
    generate = {"max_new_tokens": 9, **options}
    with pytest.raises(Stopped):
        regard.record(llama, padded, generate=generate, path=tmp_path / "a.regard")
    handle.remove()
    rest = regard.open(tmp_path / "a.regard.partial")
    assert [site.layer for site in rest.sites] == [0, 1, 2, 3]
    assert rest.shape(layer=0)[1:] == (14, 14)  # 11 tokens were given, three more were read
    if not options:
        whole = regard.record(llama, padded, generate=generate)
        for item in range(2):
            queries = rest.shape(layer=3, item=item)[1]
            known = whole.weights(layer=3, item=item, rows=slice(0, queries), cols=slice(0, queries))
            torch.testing.assert_close(rest.weights(layer=3, item=item), known)


def test_a_disk_that_fills_is_one_sentence_and_keeps_what_was_complete(
    llama: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = torch.randint(2, 61, (1, 500), generator=torch.Generator().manual_seed(1))
    pwrite, room = os.pwrite, [250_000]

    def full(handle: int, data: Any, offset: int) -> int:
        if room[0] <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        done = pwrite(handle, data[: room[0]], offset)
        room[0] -= done
        return done

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OutputError, match="No space left on device") as raised:
        regard.record(llama, ids, path=tmp_path / "a.regard")
    monkeypatch.undo()
    assert "\n" not in str(raised.value)
    assert "a.regard.partial holds" in raised.value.__notes__[0]
    rest = regard.open(tmp_path / "a.regard.partial")
    assert 0 < len(rest.sites) < 4
    assert torch.equal(rest.weights(layer=0), regard.record(llama, ids).weights(layer=0))
    assert not llama._forward_hooks


def test_a_process_that_is_killed_leaves_what_was_complete(tmp_path: Path) -> None:
    program = f"""
        import os, signal, torch, transformers, regard
        torch.manual_seed(0)
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**{DECODER!r})).eval()
        die = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        model.model.layers[3].register_forward_pre_hook(die)
        regard.record(model, torch.arange(2, 40)[None], path={str(tmp_path / "a.regard")!r})
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True)
    assert done.returncode == -signal.SIGKILL
    assert os.listdir(tmp_path) == ["a.regard.partial"]
    rest = regard.open(tmp_path / "a.regard.partial")
    assert [site.layer for site in rest.sites] == [0, 1, 2]
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**DECODER)).eval()
    whole = regard.record(model, torch.arange(2, 40)[None])
    for layer in range(3):
        assert torch.equal(rest.weights(layer=layer), whole.weights(layer=layer))


def test_wherever_the_writing_stopped_the_file_opens_or_says_that_nothing_is_complete(
    llama: Any, tmp_path: Path
) -> None:
    handle = stopping(llama.model.layers[3], Stopped("here"))
    with pytest.raises(Stopped):
        regard.record(llama, torch.arange(2, 12)[None], path=tmp_path / "a.regard")
    handle.remove()
    whole = (tmp_path / "a.regard.partial").read_bytes()
    cut, counts = tmp_path / "cut.partial", []
    first = 8 + int.from_bytes(whole[:8], "little")
    for size in [0, 5, 60, 100, first, *range(first + 1, len(whole), 577), len(whole)]:
        cut.write_bytes(whole[:size])
        try:
            counts.append(len(regard.open(cut).sites))
        except DamagedFile:
            counts.append(0)
    assert counts == sorted(counts)
    assert set(counts) == {0, 1, 2, 3}
    broken = bytearray(whole)
    broken[first + 100 :: 97] = b"\xff" * len(broken[first + 100 :: 97])
    cut.write_bytes(broken)
    with pytest.raises(DamagedFile):
        regard.open(cut)


def test_a_file_that_is_being_written_is_refused_to_a_second_recorder(llama: Any, tmp_path: Path) -> None:
    with Recorder(llama, path=tmp_path / "a.regard"), torch.no_grad():
        with pytest.raises(OutputError), Recorder(llama, path=tmp_path / "a.regard"):
            pass
        llama(torch.arange(2, 12)[None])
    assert regard.open(tmp_path / "a.regard").shape(layer=0) == (4, 10, 10)


def test_too_little_memory_in_one_layer_is_one_sentence(llama: Any, tmp_path: Path) -> None:
    def lack() -> torch.OutOfMemoryError:
        return torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")

    for options in ({}, {"path": tmp_path / "a.regard"}):
        handle = stopping(llama.model.layers[2], lack())
        with pytest.raises(RecordingError, match="not enough memory") as raised:
            regard.record(llama, torch.arange(2, 12)[None], **options)
        handle.remove()
        assert "\n" not in str(raised.value)
    assert "a.regard.partial holds the 2 calls" in raised.value.__notes__[0]
    handle = stopping(llama.model.layers[2], lack())
    with pytest.raises(torch.OutOfMemoryError) as own, Recorder(llama):
        llama(torch.arange(2, 12)[None])
    handle.remove()
    assert any("offload=True" in note for note in own.value.__notes__)
    other = stopping(llama.model.layers[2], RuntimeError("shapes differ"))
    with pytest.raises(RuntimeError, match="shapes differ"):
        regard.record(llama, torch.arange(2, 12)[None])
    other.remove()


def test_a_comparison_for_which_there_is_no_memory_is_left_out_and_said(
    llama: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from regard.record import proof

    gather, calls = proof.gather, []

    def sometimes(*args: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory")
        return gather(*args)

    monkeypatch.setattr(proof, "gather", sometimes)
    recording = regard.record(llama, torch.arange(2, 12)[None])
    assert [site.proof.rows for site in recording.sites] == [4, 0, 4, 4]
    assert "not enough memory" in recording.sites[1].proof.note


def test_more_weights_than_memory_holds_are_refused_with_the_way_out(tmp_path: Path) -> None:
    from regard.record.recording import Axis, Provenance, Recording
    from regard.record.site import Site

    length = 3_000_000
    one = torch.zeros(1, 1, 1, 2).expand(1, 1, length, 2)
    axis = Axis((_Long(length),), (range(length),))  # type: ignore[arg-type]
    recording = Recording((Site("a", 0, "self", one, one, 1.0),), {"text": axis}, Provenance("m", "M"))
    recording.sites[0].know_lse(torch.zeros(1, 1, 1).expand(1, 1, length))
    with pytest.raises(TooLong, match="rows= and cols="):
        recording.weights(layer=0)


class _Long:
    """As many tokens as one likes."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length
