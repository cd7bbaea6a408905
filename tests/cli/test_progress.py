"""A bar where somebody looks, one line elsewhere; Ctrl-C leaves neither a traceback nor half a file."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import regard
from by_hand import recording_of
from regard.cli.progress import Bar
from regard.words import catalogue

Run = Callable[..., Any]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(work: Callable[[Bar], None], kind: type[io.StringIO], monkeypatch: pytest.MonkeyPatch) -> str:
    """What stands on stderr after a block of `work`."""
    monkeypatch.setattr(sys, "stderr", stream := kind())
    with Bar("Recording …") as bar:
        work(bar)
    return stream.getvalue()


def loading(bar: Bar) -> None:
    bar.download("minilm", 0, 90_000_000)
    bar.download("minilm", 45_000_000, 90_000_000)


def recording(bar: Bar) -> None:
    for heard in range(31):
        bar("recording", heard, 30)
    bar("generating", 7, 0)


def test_a_download_is_counted_in_megabytes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(loading, io.StringIO, monkeypatch) == "Recording …\nDownloading minilm (90 MB) …\n"
    lines = shown(loading, Terminal, monkeypatch).split("\r")
    assert lines[1] == "Recording …"
    assert lines[3].rstrip() == f"minilm  {'━' * 12}{'╌' * 12}   50%  45/90 MB"


def test_work_is_counted_in_what_it_consists_of(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(recording, io.StringIO, monkeypatch) == "Recording …\n"
    lines = [line.rstrip() for line in shown(recording, Terminal, monkeypatch).split("\r")]
    assert lines[17] == f"Recording  {'━' * 12}{'╌' * 12}   50%  attention 15/30"
    assert lines[-3:] == ["Writing  token 7", "", ""]


def test_every_line_covers_the_one_before_and_the_last_clears_it(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown(recording, Terminal, monkeypatch).split("\r")[1:]
    for before, after in pairwise(lines[:-1]):
        assert len(after) >= len(before.rstrip())
    assert not lines[-2].strip()


def test_all_that_the_library_tells_of_has_a_name_in_both_languages() -> None:
    for language in ("en", "fr"):
        words = catalogue(language)  # type: ignore[arg-type]
        for what in ("recording", "generating", "packing", "overview"):
            assert words[f"cli.work.{what}"]
            assert "{done}" in words[f"cli.count.{what}"]


@pytest.mark.parametrize("command", ["record", "export", "heatmap"])
def test_a_terminal_sees_how_far_it_is(
    say_to: Run, model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    def record(*_: Any, progress: Any, path: str | None, **__: Any) -> Any:
        progress("recording", 3, 6)
        recording = recording_of(["x"] * (600 if command == "heatmap" else 9))
        if path is not None:
            recording.save(path)
        return recording

    monkeypatch.setattr(regard, "record", record, raising=False)
    monkeypatch.setattr(sys, "stderr", stream := Terminal())
    said = say_to(command, "x", "-o", str(tmp_path / ("x.svg" if command == "heatmap" else "x.html")))
    assert said.status == 0
    assert "50%  attention 3/6" in stream.getvalue()
    assert ("Packing" in stream.getvalue()) == (command == "export")
    assert ("row 1800/1800" in stream.getvalue()) == (command == "heatmap")
    assert stream.getvalue().endswith("\r")


@pytest.mark.parametrize("command", ["record", "export", "heatmap", "view"])
def test_control_c_leaves_one_line_and_no_file(command: str, tmp_path: Path) -> None:
    code = """
import sys, time, regard
def record(*_, progress, **__):
    print("running", flush=True)
    for heard in range(1000):
        progress("recording", heard, 1000)
        time.sleep(0.01)
regard.load, regard.record = (lambda *_, **__: None), record
from regard.cli import main
main()
"""
    output = ["--no-browser"] if command == "view" else ["-o", str(tmp_path / "x.svg")]
    process = subprocess.Popen(
        [sys.executable, "-c", code, command, "x", *output],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
    )
    assert process.stdout
    assert process.stdout.readline() == "running\n"
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=20)
    assert (process.returncode, out, errors) == (130, "", "Recording …\nregard: interrupted.\n")
    assert list(tmp_path.iterdir()) == []


def test_control_c_while_a_page_is_packed_leaves_the_old_one(
    say_to: Run, model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(self: Bar, what: str, done: int, total: int, /) -> None:
        if what == "packing" and done:
            raise KeyboardInterrupt

    monkeypatch.setattr(Bar, "__call__", interrupt)
    monkeypatch.setattr(regard, "record", lambda *_, **__: recording_of(["x"] * 9), raising=False)
    old = tmp_path / "x.html"
    old.write_text("the old page", encoding="utf-8")
    assert say_to("export", "x", "-o", str(old)).status == 130
    assert old.read_text(encoding="utf-8") == "the old page"
    assert not re.search("part", " ".join(path.name for path in tmp_path.iterdir()))
