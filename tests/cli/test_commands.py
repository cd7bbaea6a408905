"""Each command does what its help says, with text, pair, file or recording."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import regard
from regard.errors import OutputError

Run = Callable[..., Any]
Calls = list[tuple[Any, ...]]


def test_record_writes_a_recording_and_says_what_was_checked(
    say_to: Run, model: Calls, tmp_path: Path
) -> None:
    path = tmp_path / "fox.regard"
    said = say_to("record", "the quick fox", "-o", str(path))
    assert said.status == 0, said.err
    assert model == [("minilm", "the quick fox", False)]
    assert str(path) in said.out
    assert "attentions: 2, tokens: 3; recomputed and checked, max error 2e-07" in said.out
    assert regard.open(path).tokens().texts == ("the", "quick", "fox")


def test_record_prints_json_when_asked(say_to: Run, model: Calls, tmp_path: Path) -> None:
    path = tmp_path / "fox.regard"
    printed = json.loads(say_to("record", "the quick fox", "-o", str(path), "--json").out)
    assert printed == {
        "path": str(path),
        "bytes": path.stat().st_size,
        "tokens": 3,
        "sites": 2,
        "max_error": pytest.approx(2e-7),
    }


def test_text_comes_from_arguments_pair_file_or_standard_input(
    say_to: Run, model: Calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "text.txt"
    file.write_bytes("\ufeffune ligne\nune autre\n".encode())
    out = ("-o", str(tmp_path / "x.regard"))
    assert say_to("record", "a b", "c d", *out).status == 0
    assert say_to("record", "a b", "--pair", "c d", "--truncate", *out).status == 0
    assert say_to("record", "--file", str(file), *out).status == 0
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"from a pipe\n")))
    assert say_to("record", "--file", "-", "--model", "other", *out).status == 0
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"from a pipe too\n")))
    assert say_to("record", "-", *out).status == 0
    assert model.pop() == ("minilm", "from a pipe too", False)
    assert model == [
        ("minilm", "a b", "c d", False),
        ("minilm", "a b", "c d", True),
        ("minilm", "une ligne\nune autre", False),
        ("other", "from a pipe", False),
    ]


def test_a_model_may_chat_and_generate(say_to: Run, model: Calls, tmp_path: Path) -> None:
    out = ("-o", str(tmp_path / "x.regard"))
    assert say_to("record", "a b", "--model", "smollm2", "--chat", "--generate", "40", *out).status == 0
    assert model == [("smollm2", "a b", False, ("chat", True), ("generate", 40))]
    said = say_to("record", "a b", "--generate", "0", *out)
    assert said.status == 2
    assert "generate" in said.err


def test_texts_that_cannot_be_are_refused_before_a_model_is_loaded(
    say_to: Run, model: Calls, recording_file: str, tmp_path: Path
) -> None:
    binary = tmp_path / "picture.txt"
    binary.write_bytes(b"\xff\xfe\x00")
    cases = {
        (): "There is no text.",
        ("a", "b", "c"): "Give one text, or two for a pair; got 3.",
        ("--file", str(binary)): "picture.txt is not a text in UTF-8.",
        ("--file", str(tmp_path / "missing.txt")): "missing.txt cannot be read (No such file or directory).",
        (recording_file, "a"): "small.regard is a recording: give it alone",
        (recording_file, "--model", "other"): "small.regard was recorded with a model already",
        (str(tmp_path / "missing.regard"),): "missing.regard",
        (str(tmp_path / "damaged.regard"),): "damaged.regard",
    }
    (tmp_path / "damaged.regard").write_bytes(Path(recording_file).read_bytes()[:200])
    for arguments, sentence in cases.items():
        said = say_to("export", *arguments, "-o", str(tmp_path / "x.html"))
        assert said.status == 2, arguments
        assert sentence in said.err
        assert said.err.count("\n") == 1
    assert model == []
    assert not (tmp_path / "x.html").exists()


def test_export_writes_the_page(say_to: Run, recording_file: str, tmp_path: Path) -> None:
    path = tmp_path / "fox.html"
    said = say_to("export", recording_file, "-o", str(path))
    assert said.status == 0
    assert str(path) in said.out
    assert '"kind":"recording"' in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_heatmap_writes_a_figure(say_to: Run, recording_file: str, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"fox.{suffix}"
    said = say_to("heatmap", recording_file, "--layer", "1", "--head", "2", "--numbers", "-o", str(path))
    assert said.status == 0, said.err
    assert path.stat().st_size > 1000


def test_heatmap_refuses_what_is_not_there(say_to: Run, recording_file: str, tmp_path: Path) -> None:
    output = str(tmp_path / "fox.png")
    cases = {
        ("--layer", "2"): "layer must be one of",
        ("--layer", "1", "--head", "3"): "head must lie in [0, 3); got 3.",
        ("--layer", "1", "--head", "-1"): "head must lie in [0, 3); got -1.",
        ("--kind", "cross"): "kind must be one of self, causal",
    }
    for arguments, sentence in cases.items():
        said = say_to("heatmap", recording_file, *arguments, "-o", output)
        assert said.status == 2
        assert sentence in said.err
        assert said.err.count("\n") == 1
    assert "must end in one of: png, svg, pdf" in say_to("heatmap", recording_file, "-o", "fox.docx").err
    assert "No window can be opened here" in say_to("heatmap", recording_file).err


def test_models_describes_in_the_language_asked_for(say_to: Run) -> None:
    out = say_to("models", "--lang", "fr").out
    assert "Encodeur BERT de phrases (MiniLM), 6 × 12" in out
    assert "92 Mo" in out


def test_models_lists_name_size_licence_sources_and_whether_here(say_to: Run) -> None:
    lines = say_to("models").out.splitlines()
    assert lines[0].split() == ["name", "what", "it", "is", "size", "licence", "here", "from"]
    minilm = next(line for line in lines if line.startswith("minilm"))
    assert re.search(r"92 MB\s+Apache-2.0\s+(yes|no)\s+sentence-transformers/all-MiniLM-L6-v2", minilm)
    listed = json.loads(say_to("models", "--json").out)
    assert listed[0].keys() >= {"name", "size_bytes", "licence", "sources", "here"}


def test_a_port_in_use_is_said_before_anything_is_loaded(say_to: Run, model: Calls) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        for command in (["view", "a b"], ["serve"]):
            said = say_to(*command, "--port", port, "--no-browser")
            assert said.status == 2
            assert (
                said.err
                == f"regard: Port {port} is in use. Choose another, or leave out --port to get a free one.\n"
            )
    assert model == []


def test_view_refuses_a_layer_that_is_not_there_before_it_serves(say_to: Run, recording_file: str) -> None:
    said = say_to("view", recording_file, "--layer", "9", "--no-browser")
    assert said.status == 2
    assert "layer must be one of" in said.err


def test_view_serves_the_recording_at_its_link_until_interrupted(recording_file: str) -> None:
    command = [sys.executable, "-c", "from regard.cli import main; main()", "view", recording_file]
    options = ["--layer", "1", "--head", "2", "--lang", "fr", "--no-browser"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    assert process.stdout
    link = process.stdout.readline().strip()
    found = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/\?token=\S+#layer=1&head=2&lang=fr", link)
    assert found, (link, process.stderr and process.stderr.read())
    browser = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPCookieProcessor(CookieJar())
    )
    with browser.open(link) as page:
        assert b"regard-data" in page.read()
    with browser.open(f"http://127.0.0.1:{found[1]}/api/recording") as answer:
        assert json.load(answer)["model"]["name"] == "by hand"
    assert process.stdout.readline() == "Ctrl-C pour arrêter.\n"
    process.send_signal(signal.SIGINT)
    rest, errors = process.communicate(timeout=20)
    assert (process.returncode, rest, errors) == (0, "", "")


def test_a_recording_that_was_never_finished_opens_by_its_name_and_can_be_completed(
    say_to: Run, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=61, hidden_size=32, intermediate_size=32, num_hidden_layers=3, num_attention_heads=4
    )
    model = transformers.LlamaForCausalLM(config).eval()

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    model.model.layers[2].register_forward_pre_hook(stop)
    with pytest.raises(KeyboardInterrupt) as raised:
        regard.record(model, torch.arange(2, 12)[None], path=tmp_path / "a.regard")
    partial = tmp_path / "a.regard.partial"
    assert str(partial) in raised.value.__notes__[0]
    assert say_to("record", str(partial), "-o", str(tmp_path / "b.regard")).status == 0
    assert [site.layer for site in regard.open(tmp_path / "b.regard").sites] == [0, 1]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OutputError("The disk is full.")])
def test_what_was_complete_is_named_when_a_recording_is_broken_off(
    say_to: Run, model: Calls, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def broken_off(*_: Any, **__: Any) -> Any:
        error.add_note("x.regard.partial holds it.")
        raise error

    monkeypatch.setattr(regard, "record", broken_off)
    said = say_to("record", "a text", "-o", "x.regard")
    assert said.err.endswith("x.regard.partial holds it.\n")
