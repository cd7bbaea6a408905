"""The lessons as a folder: separate files that find each other, also without scripts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lesson_page import CHAPTERS, bars

Open = Callable[..., Any]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `regard learn -o` writes."""
    from regard.lessons.folder import write_folder

    return write_folder(tmp_path_factory.mktemp("folder"))[-1].parent


@pytest.fixture
def opened(chromium: Any, folder: Path) -> Iterator[Open]:
    """Open a file of the folder. A request that leaves the folder or an error in a page fails the test."""
    faults: list[str] = []
    contexts = []

    def go(name: str, **options: Any) -> Any:
        context = chromium.new_context(locale="en-GB", **options)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda said: faults.append(said.text) if said.type == "error" else None)
        page.on(
            "request",
            lambda asked: None if asked.url.startswith(folder.as_uri()) else faults.append(asked.url),
        )
        page.goto((folder / name).as_uri())
        return page

    yield go
    for context in contexts:
        context.close()
    assert faults == []


def test_the_folder_opens_from_files_and_its_figures_compute(opened: Open) -> None:
    page = opened("index.html")
    page.get_by_role("link", name="La température").click()
    page.wait_for_selector("figure .stage")
    assert page.locator("h1").inner_text() == "La température"
    page.get_by_role("slider").press("Home")
    assert max(bars(page).values()) == 1
    page.locator("a[rel=next]").click()
    page.wait_for_selector("figure canvas")
    assert page.url.endswith("/fr/05-mask.html")


def test_the_other_language_is_the_other_file_and_back_returns(opened: Open) -> None:
    page = opened(f"fr/{CHAPTERS[0]}.html")
    page.wait_for_selector("figure .stage")
    page.get_by_test_id("theme-dark").click()
    page.get_by_test_id("language-en").click()
    page.wait_for_url(re.compile("/en/01-ask-and-answer.html"))
    page.wait_for_selector("figure .stage")
    assert page.locator("h1").inner_text() == "Asking and answering"
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.go_back()
    page.wait_for_url(re.compile("/fr/01-ask-and-answer.html"))
    page.wait_for_function("document.querySelector('h1').textContent === 'Demander et répondre'")


def test_a_page_of_the_folder_can_be_read_without_scripts(opened: Open) -> None:
    page = opened(f"en/{CHAPTERS[2]}.html", java_script_enabled=False)
    assert page.locator("h1").inner_text() == "Why √d"
    assert page.locator("math").count() > 5
    assert page.locator("details").count() == 3
