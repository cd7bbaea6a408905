"""Where a file may not go, grow or be: one sentence, and nothing else is touched."""

from __future__ import annotations

import mmap
import os
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import regard
from regard.errors import InvalidArgument, OutputError, UnfaithfulRecording
from regard.record import appended
from regard.record.recorder import Recorder

X = torch.randn(1, 20, 16, generator=torch.Generator().manual_seed(0))


class Attends(nn.Module):
    """One attention of two heads, with what is added to its logits."""

    def __init__(self, added: Any = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.project = nn.Linear(16, 48)
        self.added = added

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (t.unflatten(-1, (2, 8)).transpose(1, 2) for t in self.project(x).chunk(3, -1))
        return F.scaled_dot_product_attention(q, k, v, attn_mask=self.added).transpose(1, 2).flatten(2)


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_files_that_may_not_grow_far_hold_what_fits_and_else_one_sentence(tmp_path: Path) -> None:
    whole = regard.record(Attends(), X)
    with files_of_at_most(1 << 20):
        there = regard.record(Attends(), X, path=tmp_path / "a.regard")
    assert torch.equal(there.weights(layer=0), whole.weights(layer=0))
    with files_of_at_most(1 << 16), pytest.raises(OutputError, match="File too large"):
        regard.record(Attends(), X, path=tmp_path / "b.regard")
    assert os.listdir(tmp_path) == ["a.regard"]


def test_memory_that_may_not_be_mapped_far_ahead_is_mapped_piece_by_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mapped = mmap.mmap

    def short(handle: int, size: int, **where: Any) -> Any:
        if size > 1 << 20:
            raise OSError(12, os.strerror(12))
        return mapped(handle, size, **where)

    monkeypatch.setattr(mmap, "mmap", short)
    there = regard.record(Attends(), X, path=tmp_path / "a.regard")
    monkeypatch.undo()
    assert torch.equal(there.weights(layer=0), regard.record(Attends(), X).weights(layer=0))


def test_no_folder_and_no_device_is_ever_replaced(tmp_path: Path) -> None:
    ran: list[int] = []
    model = Attends()
    model.register_forward_pre_hook(lambda *_: ran.append(1))
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for place, reason in (("folder", "Is a directory"), ("pipe", "Invalid argument")):
        with pytest.raises(OutputError, match=reason):
            regard.record(model, X, path=tmp_path / place)
        assert not ran
        with pytest.raises(OutputError, match=reason):
            regard.record(Attends(), X).save(tmp_path / place)
    assert sorted(os.listdir(tmp_path)) == ["folder", "pipe"]


def test_a_system_without_pwrite_or_room_ahead_writes_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "pwrite")
    monkeypatch.delattr(os, "posix_fallocate")
    there = regard.record(Attends(), X, path=tmp_path / "a.regard")
    assert torch.equal(there.weights(layer=0), regard.record(Attends(), X).weights(layer=0))
    room = appended.Appended(tmp_path / "room", tmp_path / "room")
    assert room.room(torch.float32, (300_000, 3)).sum() == 0
    assert os.stat(tmp_path / "room").st_blocks * 512 >= 3_600_000
    room.close()


def test_numbers_of_any_width_go_into_a_file(tmp_path: Path) -> None:
    class Given(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Attends()

        def forward(self, x: torch.Tensor, input_ids: torch.Tensor) -> torch.Tensor:
            return self.inner(x)  # type: ignore[no-any-return]

    for dtype in (torch.int8, torch.int16, torch.uint8, torch.int32, torch.bool):
        inputs = {"x": X, "input_ids": torch.ones(1, 20, dtype=dtype)}
        there = regard.record(Given(), inputs, path=tmp_path / "a.regard")
        assert there.sites[0].query.shape == (1, 2, 20, 8)
    appended_file = appended.Appended(tmp_path / "b", tmp_path / "b")
    strided = torch.arange(30, dtype=torch.int32)[::5]
    appended_file.append_tensor(strided)
    appended_file.close()
    assert (tmp_path / "b").read_bytes()[:24] == strided.contiguous().numpy().tobytes()


@pytest.mark.parametrize("file", [False, True])
def test_a_parameter_among_the_logits_is_recorded_as_it_was_before_the_step(
    file: bool, tmp_path: Path
) -> None:
    torch.manual_seed(1)
    model = Attends(nn.Parameter(torch.randn(2, 20, 20)))
    whole = regard.record(model, X)
    optimizer = torch.optim.SGD(model.parameters(), 1.0)
    with Recorder(model, path=tmp_path / "a.regard" if file else None) as recorder:
        model(X).square().sum().backward()
        optimizer.step()
    assert torch.equal(recorder.recording.weights(layer=0), whole.weights(layer=0))
    assert not torch.allclose(regard.record(model, X).weights(layer=0), whole.weights(layer=0))


@pytest.mark.parametrize("file", [False, True])
def test_a_mask_that_is_written_over_after_its_use_is_refused(file: bool, tmp_path: Path) -> None:
    model = Attends(torch.ones(20, 20, dtype=torch.bool).tril())
    path = tmp_path / "a.regard" if file else None

    def twice() -> None:
        model(X)
        model.added[:, 1:3] = False
        model(X)

    with pytest.raises(UnfaithfulRecording, match="mask after using them"), Recorder(model, path=path):
        twice()


def test_two_threads_at_once_under_one_recorder_are_refused() -> None:
    model, together = Attends(), threading.Barrier(2)
    model.project.register_forward_hook(lambda *_: (together.wait(20), None)[1])
    threads = [threading.Thread(target=model, args=(X,)) for _ in range(2)]

    def at_once() -> None:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    with pytest.raises(InvalidArgument, match="a Recorder of its own"), Recorder(model, any_thread=True):
        at_once()


def test_strided_queries_are_written_in_few_large_pieces_and_in_order() -> None:
    queries = torch.randn(2, 9000, 3, 64).transpose(1, 2)  # as models hand them over
    pieces = list(appended._pieces(queries))
    assert torch.equal(torch.cat(pieces), queries.reshape(-1))
    assert len(pieces) <= 2 * queries.numel() * 4 / appended._PIECE
    assert max(piece.numel() * 4 for piece in pieces) <= appended._PIECE
