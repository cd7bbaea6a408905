"""How far something is that takes long: a function that is called while it runs, and may end it by raising.

    progress(what, done, total)     "recording", 12, 30

`what` is a fixed English word for programs to go by ("lse", "overview", "top_k", "recording", "generating",
"packing"); what a person reads is made of it by whoever shows it. What raises from a call (KeyboardInterrupt,
or the caller's own exception) ends the work there; nothing is left half done.
"""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Called while something runs: what it is, how much of it is done, how much there is."""

    def __call__(self, what: str, done: int, total: int, /) -> None: ...


def telling(progress: Progress | None) -> Progress:
    """`progress`, or one that tells nobody."""
    return _silent if progress is None else progress


def _silent(what: str, done: int, total: int, /) -> None:
    pass
