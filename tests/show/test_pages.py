"""The explorer and the lessons as files: one page, in the language in force, which connects to nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from regard.errors import OutputError
from regard.show import pages
from regard.words import set_language


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> None:
    page = """<!doctype html><html lang="en"><meta content="connect-src 'self'"></html>"""
    monkeypatch.setattr(pages, "front_end", lambda name: page)


@pytest.fixture(autouse=True)
def english_again() -> Iterator[None]:
    yield
    set_language("en")


def test_a_page_begins_in_the_language_in_force_with_the_state_asked_for(built: None) -> None:
    set_language("fr")
    assert '<html lang="fr" data-view="lang=fr&amp;T=0">' in pages.page("explore", {"T": 0})


def test_a_state_cannot_break_out_of_its_attribute(built: None) -> None:
    assert '"><script>' not in pages.page("explore", {'"><script>': '"><script>'})


def test_a_written_page_may_connect_to_nothing(built: None, tmp_path: Path) -> None:
    path = pages.write_page("explore", tmp_path / "explorer.html")
    assert "connect-src 'none'" in path.read_text(encoding="utf-8")


def test_a_front_end_of_another_make_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "front_end", lambda name: "<html>")
    with pytest.raises(OutputError):
        pages.page("explore")
