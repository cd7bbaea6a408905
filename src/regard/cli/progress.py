"""The bar of whatever takes long, on stderr: redrawn on a terminal; elsewhere one line, and no more.

Recording  ━━━━━━━━━━━━╌╌╌╌╌╌╌╌╌╌╌╌   50%  attention 15/30
"""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Self

from regard.words import say

_WIDTH = 24


class Bar:
    """A `progress=`, called with (what, done, total), which shows it until its block ends.

    `first` stands there until then; where stderr is no terminal it is all that is said.
    """

    def __init__(self, first: str = "") -> None:
        self._drawn = ""
        self._said: set[str] = set()
        self._terminal = sys.stderr.isatty()
        self._first = first

    def __call__(self, what: str, done: int, total: int, /) -> None:
        """Work: attentions, tokens or rows."""
        self._draw(
            _line(say(f"cli.work.{what}"), done, total, say(f"cli.count.{what}", done=_of(done, total)))
        )

    def download(self, what: str, done_bytes: int, total_bytes: int, /) -> None:
        """The progress of `regard.load`, in bytes."""
        if not self._terminal and what not in self._said:
            self._said.add(what)
            size = f"{total_bytes / 1e6:.0f}" if total_bytes else "?"
            sys.stderr.write(say("cli.downloading", what=what, size=size) + "\n")
        done, total = (f"{count / 1e6:.0f}" if count else "" for count in (done_bytes or 1, total_bytes))
        size = say("cli.megabytes", size=f"{done}/{total}" if total else done)
        self._draw(_line(what, done_bytes, total_bytes, size))

    def __enter__(self) -> Self:
        if self._first and not self._terminal:
            sys.stderr.write(self._first + "\n")
        self._draw(self._first)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._draw("")
        if self._terminal:
            sys.stderr.write("\r")
            sys.stderr.flush()

    def _draw(self, line: str) -> None:
        if not self._terminal or line == self._drawn:
            return
        sys.stderr.write("\r" + line.ljust(len(self._drawn)))
        sys.stderr.flush()
        self._drawn = line


def _line(what: str, done: int, total: int, count: str) -> str:
    if not total:
        return f"{what}  {count}"
    share = min(done / total, 1.0)
    bar = ("━" * round(share * _WIDTH)).ljust(_WIDTH, "╌")
    return f"{what}  {bar}  {share:4.0%}  {count}"


def _of(done: int, total: int) -> str:
    return f"{done}/{total}" if total else str(done)
