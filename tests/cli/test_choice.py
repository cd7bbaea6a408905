"""Options choose what a new recording keeps, in both languages; of one that is made they choose nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import regard

Run = Callable[..., Any]
Calls = list[tuple[Any, ...]]


def test_options_choose_what_is_kept(say_to: Run, model: Calls, tmp_path: Path) -> None:
    out = ("-o", str(tmp_path / "x.regard"))
    said = say_to("record", "a b", *out, "--layers", "0,3-5", "--heads", "2", "--kinds", "self, cross")
    assert said.status == 0, said.err
    assert dict(model[-1][3:]) == {"layers": (0, 3, 4, 5), "heads": (2,), "kinds": ("self", "cross")}
    assert say_to("record", "a b", *out, "--keep", "top_k", "--dtype", "float16").status == 0
    assert dict(model[-1][3:]) == {"keep": "top_k", "dtype": torch.float16}
    assert say_to("record", "a b", *out, "--top", "8").status == 0
    assert dict(model[-1][3:]) == {"keep": "top_k", "k": 8}


@pytest.mark.parametrize("command", ["record", "view", "export", "heatmap"])
def test_every_command_that_records_has_them(command: str, say_to: Run) -> None:
    for language, words in (("en", "Keep only these layers"), ("fr", "Ne garder que ces couches")):
        said = say_to(command, "--help", "--lang", language)
        assert words in " ".join(said.out.split())
        for option in ("--layers", "--heads", "--kinds", "--keep", "--top", "--dtype"):
            assert option in said.out


@pytest.mark.parametrize(
    ("arguments", "english", "french"),
    [
        (("--layers", "a"), "--layers takes numbers and ranges, such as 0,3-5; got a", "par exemple 0,3-5"),
        (("--heads", "5-3"), "--heads takes numbers and ranges, such as 0,3-5; got 5-3", "reçu : 5-3"),
        (("--kinds", "none"), "--kinds takes self, causal, cross, with commas", "séparés par des virgules"),
        (("--keep", "all"), "--keep", "--keep"),
        (("--top", "0"), "--top", "--top"),
    ],
)
def test_what_is_no_choice_is_refused(
    arguments: tuple[str, ...], english: str, french: str, say_to: Run, tmp_path: Path
) -> None:
    out = ("-o", str(tmp_path / "x.regard"))
    for language, words in (("en", english), ("fr", french)):
        said = say_to("record", "a b", *out, *arguments, "--lang", language)
        assert said.status == 2
        assert words in said.err.splitlines()[-1]


def test_a_recording_has_chosen_already(say_to: Run, recording_file: str, tmp_path: Path) -> None:
    said = say_to("export", recording_file, "-o", str(tmp_path / "x.html"), "--heads", "0")
    assert said.status == 2
    assert "was recorded already: leave out --heads" in said.err


def test_the_first_layer_that_was_kept_is_drawn(
    say_to: Run, minilm: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(regard, "load", lambda *_, **__: minilm)
    path = tmp_path / "x.svg"
    said = say_to("heatmap", "the quick fox", "-o", str(path), "--layers", "4", "--heads", "7")
    assert said.status == 0, said.err
    assert "<!-- minilm · layer 4 · head 7 -->" in path.read_text()
