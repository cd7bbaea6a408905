"""The three pages beside each other: linked where the application serves them, alone as files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Open = Callable[..., Any]


def test_the_pages_link_to_each_other_and_keep_language_and_theme(visit: Open, link: str) -> None:
    page = visit(f"{link}#lang=fr&theme=dark")
    for name, title in [
        ("Explorateur", "Regard : l’explorateur"),
        ("Leçons", "L’attention en dix leçons"),
        ("Vue", "The quick brown fox jumps over the lazy dog. · Regard"),
    ]:
        page.locator(".page-nav").get_by_role("link", name=name).click()
        page.wait_for_function("title => document.title.replaceAll('\u00a0', ' ') === title", arg=title)
        assert page.evaluate("document.documentElement.lang") == "fr"
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"
        assert page.locator(".page-nav [aria-current]").inner_text() == name
    assert "token" not in page.url


@pytest.mark.parametrize("width", [400, 1280])
def test_the_links_find_room(visit: Open, link: str, width: int) -> None:
    for name, ready in [("", "lines-canvas"), ("explore.html", "query"), ("learn.html", "language-fr")]:
        page = visit(link.replace("/?", f"/{name}?") + "#lang=fr", width=width, ready=ready)
        assert page.locator(".page-nav a").count() == 3
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert width < 1280 or page.locator(".page-header").bounding_box()["height"] < 56, name


def test_a_file_shows_no_links_that_lead_nowhere(explorer: Open, lesson: Open) -> None:
    assert explorer().locator(".page-nav").count() == 0
    assert lesson("index").locator(".page-nav").count() == 0


def test_a_page_saved_from_the_application_shows_none_either(visit: Open, tmp_path: Path) -> None:
    from regard.show.pages import served

    (tmp_path / "saved.html").write_text(served("explore"), encoding="utf-8")
    page = visit((tmp_path / "saved.html").as_uri(), ready="query")
    assert page.locator(".page-nav").count() == 0
