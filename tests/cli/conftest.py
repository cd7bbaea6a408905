"""The command line in this process, with a stand-in for the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import regard
from by_hand import recording_of, small_recording
from regard import words
from regard.cli import program


@dataclass(frozen=True)
class Said:
    """What a command left behind."""

    status: int
    out: str
    err: str


@pytest.fixture(autouse=True)
def _language() -> Iterator[None]:
    """The language that a command sets ends with the test."""
    token = words._language.set("en")
    yield
    words._language.reset(token)


@pytest.fixture
def say_to(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Said]:
    """Run `regard …` as the program would, with an English locale."""
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.setenv(name, "C.UTF-8")

    def run(*arguments: str) -> Said:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            program.main(arguments)
        said = capsys.readouterr()
        return Said(int(ended.value.code or 0), said.out, said.err)

    return run


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """A stand-in that records any text by words; returns the calls."""
    calls: list[tuple[Any, ...]] = []

    def load(name: str, **_: Any) -> SimpleNamespace:
        if name == "nowhere":
            raise regard.errors.UnknownModel("There is no model nowhere.")
        return SimpleNamespace(name=name)

    def record(
        subject: Any, *texts: str, truncate: bool = False, path: str | None = None, **options: Any
    ) -> Any:
        asked = {
            name: value
            for name, value in options.items()
            if name != "progress" and (name, value) != ("keep", "qk")
        }
        calls.append((subject.name, *texts, truncate, *(item for item in asked.items() if item[1])))
        recording = recording_of(" ".join(texts).split())
        if path is not None:
            recording.save(path)
        return recording

    monkeypatch.setattr(regard, "load", load, raising=False)
    monkeypatch.setattr(regard, "record", record, raising=False)
    return calls


@pytest.fixture
def recording_file(tmp_path: Path) -> str:
    path = tmp_path / "small.regard"
    small_recording().save(path)
    return str(path)
