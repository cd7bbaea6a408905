"""Every kind of bad input, with the real model: one clear line, exit status 2, and nothing written."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import regard

Run = Callable[..., Any]


@pytest.fixture
def real(minilm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real model, loaded once for all tests; other names are looked for as always."""
    load = regard.load

    def once(name: str, **options: Any) -> Any:
        return minilm if name == "minilm" else load(name, **options)

    monkeypatch.setattr(regard, "load", once)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def refused(said: Any, *words: str) -> None:
    assert said.status == 2, said.err
    assert said.out == ""
    complaint = said.err.splitlines()[-1]
    assert complaint.startswith("regard: ")
    assert "Traceback" not in said.err
    for word in words:
        assert word in complaint


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([""], ["The text is empty"]),
        ([" \n\t "], ["The text is empty"]),
        (["one", ""], ["The text is empty"]),
        (["\u200b\u0000"], ["no token"]),
        (["word " * 600], ["602", "512", "truncate"]),
        (["a", "--model", "no-such/model"], ["no-such/model"]),
        (["a", "--model", "no such model"], ["no such model"]),
    ],
)
def test_a_text_or_model_that_cannot_be(
    say_to: Run, tmp_path: Path, arguments: list[str], words: list[str]
) -> None:
    output = tmp_path / "out.html"
    refused(say_to("export", *arguments, "-o", str(output)), *words)
    assert not output.exists()


@pytest.mark.usefixtures("real")
def test_a_long_text_is_cut_when_asked_and_the_page_says_so(say_to: Run, tmp_path: Path) -> None:
    output = tmp_path / "out.regard"
    assert say_to("record", "word " * 600, "--truncate", "-o", str(output)).status == 0
    recording = regard.open(output)
    assert len(recording.tokens()) == 512
    assert recording.provenance.truncated


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize(
    "text",
    [
        "</script><img src=x onerror=alert(1)>",
        "مرحبا بالعالم",
        "👩‍👩‍👧‍👦",
        "a\u0000b",
        "x" * 10_000,
    ],
)
def test_strange_texts_become_a_page_a_recording_and_a_figure(say_to: Run, tmp_path: Path, text: str) -> None:
    recording, page, figure = (str(tmp_path / name) for name in ("x.regard", "x.html", "x.png"))
    assert say_to("record", text, "-o", recording).status == 0
    assert say_to("export", recording, "-o", page).status == 0
    assert say_to("heatmap", recording, "--head", "0", "-o", figure).status == 0
    assert "<img src=x" not in Path(page).read_text(encoding="utf-8")


def test_files_that_are_no_recording_are_refused_by_name(
    say_to: Run, recording_file: str, tmp_path: Path
) -> None:
    whole = Path(recording_file).read_bytes()
    header_length = struct.unpack("<Q", whole[:8])[0]
    header = json.loads(whole[8 : 8 + header_length])
    newer = dict(header, __metadata__={**header["__metadata__"], "version": "999"})
    text = json.dumps(newer).encode()
    files = {
        "empty": b"",
        "text": b"this is a text\n" * 50,
        "truncated": whole[: len(whole) // 2],
        "cut-header": whole[:100],
        "newer": struct.pack("<Q", len(text)) + text + whole[8 + header_length :],
    }
    for name, content in files.items():
        path = tmp_path / f"{name}.regard"
        path.write_bytes(content)
        for command in (["view", "--no-browser"], ["export", "-o", str(tmp_path / "x.html")]):
            refused(say_to(command[0], str(path), *command[1:]), f"{name}.regard")
    assert not (tmp_path / "x.html").exists()
    assert "newer" in say_to("view", str(tmp_path / "newer.regard")).err


def test_an_output_that_cannot_be_written_keeps_what_was_there(
    say_to: Run, recording_file: str, tmp_path: Path
) -> None:
    for command, name in (("export", "x.html"), ("heatmap", "x.png"), ("record", "x.regard")):
        target = tmp_path / "missing" / name
        said = say_to(command, recording_file, "-o", str(target))
        refused(said, str(target), "cannot be written")
        (tmp_path / name).mkdir()
        refused(say_to(command, recording_file, "-o", str(tmp_path / name)), name)
    assert not (tmp_path / "missing").exists()
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(
    ("command", "name"), [("export", "x.html"), ("heatmap", "x.png"), ("record", "x.regard")]
)
def test_what_cannot_be_is_said_before_a_model_is_loaded(
    say_to: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, name: str
) -> None:
    monkeypatch.setattr(regard, "load", lambda *_, **__: pytest.fail("the model was loaded"))
    for place in (str(tmp_path / "missing" / name), f"a\0{name}"):
        refused(say_to(command, "fox", "-o", place), "cannot be written", "Choose another place")
    refused(say_to(command, "  ", "-o", str(tmp_path / name)), "The text is empty")
    assert not list(tmp_path.iterdir())


def test_a_layer_a_head_or_a_kind_that_is_not_there_is_said_in_the_language_of_the_user(
    say_to: Run, recording_file: str, tmp_path: Path
) -> None:
    cases = {"--layer": ("99", "La couche"), "--head": ("99", "La tête"), "--kind": ("cross", "La sorte")}
    for option, (value, sentence) in cases.items():
        place = [] if option == "--layer" else ["--layer", "1"]
        output = str(tmp_path / "x.png")
        said = say_to("heatmap", recording_file, *place, option, value, "-o", output, "--lang", "fr")
        refused(said, sentence, value)


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--file", "nothere.txt"], "Impossible de lire nothere.txt (aucun fichier ni dossier de ce nom)."),
        (["a", "--keep", "qk", "--top", "3"], "--top va avec --keep top_k ; reçu : --keep qk."),
        (["a", "--layers", "9"], "layers doit être parmi 0 … 5 ; reçu : 9."),
        (["a", "--kinds", "cross"], "kinds doit être parmi self ; reçu : 'cross'."),
    ],
)
def test_what_a_command_line_gets_wrong_is_said_in_french_too(
    say_to: Run, tmp_path: Path, arguments: list[str], sentence: str
) -> None:
    output = tmp_path / "out.regard"
    refused(say_to("record", *arguments, "-o", str(output), "--lang", "fr"), sentence)
    assert not output.exists()


def test_no_folder_to_write_in_is_said_in_french_before_the_model_runs(say_to: Run, tmp_path: Path) -> None:
    said = say_to("record", "a", "-o", str(tmp_path / "no" / "a.regard"), "--lang", "fr")
    refused(said, "(aucun fichier ni dossier de ce nom). Choisissez un autre endroit.")
    assert "Enregistrement" not in said.err
