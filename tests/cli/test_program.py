"""Help in two languages, one line and status 2 for every mistake, and no torch for --help."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

import regard
from regard import words
from regard.cli import program
from regard.cli.wrote import wrote
from regard.words import LANGUAGES, catalogue

Run = Callable[..., Any]


def one_line(said: Any, status: int = 2) -> str:
    assert said.status == status
    assert said.out == ""
    assert said.err.startswith("regard: ")
    assert said.err.count("\n") == 1
    return str(said.err.removeprefix("regard: ").strip())


@pytest.mark.parametrize("name", program.COMMANDS)
def test_every_command_is_a_module_with_help_and_an_example_in_both_languages(say_to: Run, name: str) -> None:
    english = say_to(name, "--help")
    assert english.status == 0
    assert f"Usage: regard {name}" in english.out
    assert "Examples:" in english.out
    assert f"\n  regard {name}" in english.out
    french = say_to(name, "--help", "--lang", "fr")
    assert f"Utilisation : regard {name}" in french.out
    assert "Exemples :" in french.out
    assert "Afficher cette aide." in french.out
    assert importlib.import_module(f"regard.cli.{name}").__doc__


def test_help_lists_every_command_with_what_it_does(say_to: Run) -> None:
    for arguments in ((), ("--help",)):
        said = say_to(*arguments)
        assert said.status == 0
        for name in program.COMMANDS:
            assert f"\n  {name} " in said.out


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_help_text_is_left_in_the_other_language(say_to: Run, language: str) -> None:
    other = catalogue("fr" if language == "en" else "en")
    mine = catalogue(language)  # type: ignore[arg-type]
    for name in program.COMMANDS:
        out = " ".join(say_to(name, "--help", f"--lang={language}").out.split())
        for key, text in other.items():
            if key.startswith("cli.option.") and text != mine[key]:
                assert text not in out


def test_the_language_follows_the_locale_unless_told_otherwise(
    say_to: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LC_ALL", "fr_FR.UTF-8")
    assert "Voir ce qu’un transformeur regarde" in say_to("--help").out
    assert "See what a transformer" in say_to("--lang", "en", "--help").out
    assert "See what a transformer" in say_to("--help", "--lang=en").out


def test_version(say_to: Run) -> None:
    assert say_to("--version").out == regard.__version__ + "\n"


def test_mistakes_in_the_arguments_are_one_line_that_says_what_to_do(say_to: Run) -> None:
    assert one_line(say_to("veiw")).startswith("There is no command veiw. Known: view, export")
    assert one_line(say_to("--nope")) == "There is no option --nope. See regard --help."
    assert one_line(say_to("view", "x", "--nope")) == "There is no option --nope. See regard view --help."
    assert one_line(say_to("export", "x")) == "--output is missing. See regard export --help."
    assert one_line(say_to("view", "x", "--port", "many")) == (
        "The value of --port does not fit. Expected: a whole number."
    )
    assert (
        one_line(say_to("view", "x", "--lang", "de")) == "The value of --lang does not fit. Expected: en, fr."
    )
    assert "--layer" in one_line(say_to("heatmap", "x", "--layer"))
    assert one_line(say_to("view", "x", "--generate", "0")) == (
        "The value of --generate does not fit. Expected: a whole number, 1 or more."
    )
    assert one_line(say_to("view", "x", "--port", "y", "--lang", "fr")).startswith(
        "La valeur de --port ne convient"
    )


def test_any_error_of_regard_is_one_line_even_with_line_breaks_in_it(
    say_to: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise regard.errors.UnfaithfulRecording("site x\ndiffers\r\nby 0.3")

    monkeypatch.setattr(regard, "load", fail, raising=False)
    said = say_to("export", "x", "-o", "x.html")
    assert said.err.splitlines() == ["Recording …", "regard: site x differs by 0.3"]
    assert said.status == 2


@pytest.mark.parametrize(("language", "line"), [("en", "interrupted."), ("fr", "interrompu.")])
def test_interrupting_is_one_line_and_no_error(
    say_to: Run, monkeypatch: pytest.MonkeyPatch, language: str, line: str
) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(regard, "load", interrupt, raising=False)
    said = say_to("export", "x", "-o", "x.html", "--lang", language)
    assert said.status == program.INTERRUPTED
    assert said.err.splitlines()[1:] == [f"regard: {line}"]


def test_interrupting_while_the_program_is_read_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    import regard.cli
    from regard.cli import program as read

    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(read, "main", interrupted)
    with pytest.raises(SystemExit) as left:
        regard.cli.main()
    assert left.value.code == 130


def test_help_imports_neither_torch_nor_a_server_nor_matplotlib() -> None:
    code = (
        "import sys\nfrom regard.cli import program\n"
        "for words in ([], ['--help'], *([name, '--help'] for name in program.COMMANDS)):\n"
        "    assert program.run(words) == 0\n"
        "heavy = {'torch', 'numpy', 'transformers', 'matplotlib', 'fastapi', 'uvicorn', 'safetensors'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_reader_that_leaves_early_is_no_traceback() -> None:
    code = "import sys; from regard.cli import main; sys.argv = ['regard', 'models', '--json']; main()"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout
    assert process.stderr
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()
    process.wait()
    assert errors == b""


def test_a_missing_extra_is_one_line_with_the_remedy(say_to: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "regard.serve.run", None)
    said = say_to("serve")
    assert said.status == 2
    assert "pip install 'regard[app]'" in said.err


def test_french_help_is_french_and_no_line_of_it_begins_with_punctuation(
    say_to: Run,
) -> None:
    for name in program.COMMANDS:
        said = say_to(name, "--help", "--lang", "fr").out
        assert "required" not in said
        assert not re.search(r"^\s*[;:!?»]", said, re.MULTILINE)


def test_sizes_are_said_in_words_of_the_language_and_small_ones_in_kilobytes() -> None:
    words.set_language("fr")
    assert wrote("a.regard", 1762) == "a.regard (1,8 ko)"
    assert wrote("a.regard", 225_280) == "a.regard (0,23 Mo)"
    words.set_language("en")
    assert wrote("a.regard", 5_908_352) == "a.regard (5.91 MB)"
