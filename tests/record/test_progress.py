"""What takes long says how far it is, may be ended from there, and leaves the recording whole."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import pytest
import torch

from by_hand import recording_of
from regard.attend import tiles

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
