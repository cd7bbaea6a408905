"""The bar of a download, on stderr: redrawn on a terminal, one line where stderr is a file."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Self

from regard.words import say

_WIDTH = 24


class Bar:
    """Called with (what, bytes done, bytes in all) by `regard.load(progress=…)`; draws nothing until then."""

    def __init__(self) -> None:
        self._drawn = ""
        self._terminal = sys.stderr.isatty()

    def __call__(self, what: str, done_bytes: int, total_bytes: int) -> None:
        line = self._line(what, done_bytes, total_bytes)
        if line == self._drawn:
            return
        if self._terminal:
            sys.stderr.write("\r" + line.ljust(len(self._drawn)))
        elif not self._drawn:
            size = f"{total_bytes / 1e6:.0f}" if total_bytes else "?"
            sys.stderr.write(say("cli.downloading", what=what, size=size) + "\n")
        sys.stderr.flush()
        self._drawn = line

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._terminal and self._drawn:
            sys.stderr.write("\r" + " " * len(self._drawn) + "\r")
            sys.stderr.flush()

    def _line(self, what: str, done: int, total: int) -> str:
        if not total:
            return f"{what}  {say('cli.megabytes', size=f'{done / 1e6:.0f}')}"
        share = min(done / total, 1.0)
        bar = ("━" * round(share * _WIDTH)).ljust(_WIDTH, "╌")
        size = say("cli.megabytes", size=f"{done / 1e6:.0f}/{total / 1e6:.0f}")
        return f"{what}  {bar}  {share:4.0%}  {size}"
