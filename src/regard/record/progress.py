"""How far something is that takes long: a function that is called while it runs, and may end it by raising.

    progress(what, done, total)     "recording", 12, 30

`what` is a fixed English word for programs to go by ("lse", "overview", "top_k", "recording", "generating",
"packing"); what a person reads is made of it by whoever shows it. What raises from a call (KeyboardInterrupt,
or the caller's own exception) ends the work there; nothing is left half done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from regard.record.unseen import count_attentions

if TYPE_CHECKING:
    from torch import nn


class Progress(Protocol):
    """Called while something runs: what it is, how much of it is done, how much there is."""

    def __call__(self, what: str, done: int, total: int, /) -> None: ...


def telling(progress: Progress | None) -> Progress:
    """`progress`, or one that tells nobody."""
    return _silent if progress is None else progress


def _silent(what: str, done: int, total: int, /) -> None:
    pass


class Count:
    """What a recorder tells: ("recording", attentions heard, attentions there are), run by run.

    While a model generates: of its first run, the text, the same; then ("generating", tokens written, tokens
    asked for), 0 where no number was asked for. The last call says what there was: done = total.
    """

    def __init__(self, progress: Progress, model: nn.Module) -> None:
        self._tell = progress
        self._expected = count_attentions(model)
        self._done = self._total = 0
        self._most: int | None = None  # tokens of the generation that is under way, ...
        self._written = 0  # ... and how many are written

    def begin_run(self) -> None:
        """The model is called."""
        if self._most is not None and self._written:
            self._tell("generating", self._written, max(self._written, self._most) if self._most else 0)
            return
        if self._most is None:  # else an encoder ran before, which counts among them
            self._total = self._done + self._expected
        self._tell("recording", self._done, self._total)

    def heard(self) -> None:
        """One of its attentions ran."""
        if self._written:
            return
        self._done += 1
        self._total = max(self._total, self._done)
        self._tell("recording", self._done, self._total)

    def end_run(self) -> None:
        """The call ended well."""
        if self._done < self._total:
            self._total = self._done
            self._tell("recording", self._done, self._total)
        if self._most is not None:
            self._written += 1

    def begin_generation(self, most: int) -> None:
        """`generate` is called, for at most so many tokens; 0 where that is not known."""
        self._most, self._written = most, 0
        self._total = self._done + self._expected

    def end_generation(self, *, well: bool) -> None:
        """It ended."""
        if well and self._written:
            self._tell("generating", self._written, self._written)
        self._most, self._written = None, 0
