"""A real Chromium. Whatever goes wrong in a page, or leaves it for another machine, fails the test."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import regard
from lesson_page import CHAPTERS
from regard.serve.session import Session
from running import running

FOX = "The quick brown fox jumps over the lazy dog."
PEN = ("He put the pen in the box.", "It was full.")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
Open = Callable[..., Any]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder drives a browser."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", exc_type=ImportError)
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    path = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    assert path, "no Chromium is on PATH: make chromium says how to get one"
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium: Any) -> Iterator[Open]:
    """Open an address and wait for the view; `expected` is a complaint of the browser that belongs."""
    faults: list[str] = []
    contexts: list[Any] = []

    def opened(
        url: str,
        *,
        width: int = 1440,
        height: int = 900,
        expected: str = "\0",
        ready: str = "lines-canvas",
        **options: Any,
    ) -> Any:
        home = "/".join(url.split("/")[:3]) if url.startswith("http") else url.split("#")[0]
        context = chromium.new_context(
            viewport={"width": width, "height": height}, locale="en-GB", accept_downloads=True, **options
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(10_000)
        page.on("pageerror", lambda error: faults.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (faults.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on(
            "console",
            lambda said: (
                faults.append(f"console: {said.text}")
                if said.type in ("error", "warning") and expected not in said.text
                else None
            ),
        )
        page.on(
            "request",
            lambda asked: (
                None
                if asked.url.startswith((home, "data:", "blob:"))
                else faults.append(f"request: {asked.url}")
            ),
        )
        page.goto(url)
        page.get_by_test_id(ready).wait_for()
        return page

    yield opened
    for context in contexts:
        context.close()
    assert faults == []


@pytest.fixture(scope="module")
def session(minilm: Any) -> Session:
    """The application's state: minilm on the fox sentence."""
    made = Session(model="minilm")
    made.show(regard.record(minilm, FOX), minilm)
    return made


@pytest.fixture(scope="module")
def link(session: Session) -> Iterator[str]:
    """The link of a running application that shows the fox sentence."""
    with running(session) as door:
        yield door.link()


@pytest.fixture(scope="module")
def fox(minilm: Any) -> Any:
    """The fox sentence, recorded: what Python says about it."""
    return regard.record(minilm, FOX)


@pytest.fixture(scope="module")
def pair(minilm: Any) -> Any:
    """Two sentences, recorded."""
    return regard.record(minilm, *PEN)


@pytest.fixture(scope="module")
def explorer_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The explorer as the one file that `regard explore -o` writes."""
    from regard.show.pages import write_page

    return write_page("explore", tmp_path_factory.mktemp("explorer") / "explorer.html")


@pytest.fixture
def explorer(visit: Open, explorer_file: Path) -> Open:
    """Open that file with a fragment."""
    return lambda fragment="lang=fr", **options: visit(
        f"{explorer_file.as_uri()}#{fragment}", ready="query", **options
    )


@pytest.fixture(scope="module")
def lessons_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All lessons in one file, as `regard learn` serves it."""
    from regard.show.pages import write_page

    return write_page("learn", tmp_path_factory.mktemp("lessons") / "learn.html")


@pytest.fixture
def lesson(visit: Open, lessons_file: Path) -> Open:
    """Open a page of the lessons by its number or its name."""

    def go(which: int | str, lang: str = "en", theme: str = "light", **options: Any) -> Any:
        name = CHAPTERS[which - 1] if isinstance(which, int) else which
        state = f"page={name}&lang={lang}&theme={theme}"
        return visit(f"{lessons_file.as_uri()}#{state}", ready="language-fr", **options)

    return go
