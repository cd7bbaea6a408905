"""`regard explore -o`: the explorer as one file, in the language asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from regard.cli.program import run
from regard.words import set_language


def test_the_explorer_is_written_as_one_file_that_names_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "explorer.html"
    assert run(["explore", "-o", str(path)]) == 0
    assert str(path) in capsys.readouterr().out
    text = path.read_text(encoding="utf-8")
    assert 'data-view="lang=en"' in text
    assert len(text.encode()) <= 600_000


def test_a_folder_that_does_not_exist_is_one_line_and_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["explore", "-o", str(tmp_path / "nowhere" / "explorer.html")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize(("language", "word"), [("en", "Examples"), ("fr", "Exemples")])
def test_help_shows_an_example_in_both_languages(
    language: str, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    set_language(language)  # type: ignore[arg-type]
    try:
        assert run(["explore", "--help"]) == 0
    finally:
        set_language("en")
    said = capsys.readouterr().out
    assert word in said
    assert "regard explore -o" in said
