"""While the application records, the page says how far it is, and can end it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import regard
from by_hand import recording_of, small_recording
from regard.serve.session import Session
from running import running

Open = Callable[..., Any]


class Slow:
    """A stand-in for regard.record: eight attentions, each heard when the test lets it."""

    def __init__(self) -> None:
        self.let = threading.Semaphore(0)
        self.heard = 0
        self.ended = threading.Event()

    def __call__(self, _: Any, text: str, *, progress: Any, **__: Any) -> Any:
        try:
            for heard in range(9):
                self.heard = heard
                while not self.let.acquire(timeout=0.02):
                    progress("recording", heard, 8)
            return recording_of(text.split())
        finally:
            self.ended.set()


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Slow]:
    made = Slow()
    monkeypatch.setattr(regard, "record", made)
    monkeypatch.setattr(regard, "load", lambda *_, **__: type("Subject", (), {"name": "minilm"})())
    yield made
    made.let.release(1000)


@pytest.fixture
def link(slow: Slow) -> Iterator[str]:
    session = Session()
    session.show(small_recording())
    with running(session) as door:
        yield door.link()


def begin(page: Any, text: str = "one two three") -> None:
    page.get_by_test_id("edit").click()
    page.get_by_test_id("text-a").fill(text)
    page.get_by_test_id("record").click()
    page.get_by_test_id("running").wait_for()


def test_progress_is_shown_and_spoken_until_the_new_text_is_there(link: str, visit: Open, slow: Slow) -> None:
    page = visit(link)
    begin(page)
    said = page.get_by_test_id("progress-said")
    for heard, share in ((1, 0.125), (4, 0.5), (7, 0.875)):
        slow.let.release(heard - slow.heard)
        page.get_by_text(f"Recording: attention {heard} of 8").first.wait_for()
        assert said.inner_text() == f"Recording: attention {heard} of 8"
        bar = page.get_by_test_id("progress")
        assert bar.evaluate("bar => bar.value") == share
        assert bar.get_attribute("aria-label") == said.inner_text()
    status = page.get_by_test_id("running").get_by_role("status")
    assert status.inner_text() == "Recording: attention 7 of 8"  # a new quarter
    assert page.get_by_test_id("record").is_disabled()
    slow.let.release(100)
    page.get_by_text("three", exact=True).first.wait_for()
    assert page.get_by_test_id("running").count() == 0


@pytest.mark.parametrize("by", ["button", "Escape"])
def test_stopping_ends_the_run_and_keeps_text_and_picture(
    link: str, visit: Open, slow: Slow, by: str
) -> None:
    page = visit(f"{link}#lang=fr")
    begin(page, "un deux")
    slow.let.release(2)
    page.get_by_text("Enregistrement\u00a0: attention 2 sur 8").first.wait_for()
    if by == "button":
        page.get_by_test_id("stop").click()
    else:
        page.get_by_test_id("text-a").press("Escape")
    page.get_by_test_id("stopped").wait_for()
    assert slow.ended.wait(5), "the run goes on"
    assert slow.heard == 2
    assert page.get_by_test_id("text-a").input_value() == "un deux"
    assert page.get_by_test_id("lines-canvas").is_visible()
    slow.let.release(100)
    page.get_by_test_id("record").click()  # the model is free again
    page.get_by_test_id("edit").wait_for()
    assert "un deux" in page.get_by_test_id("text").inner_text()


def test_a_page_that_is_closed_ends_its_run(link: str, visit: Open, slow: Slow) -> None:
    page = visit(link)
    begin(page)
    page.close()
    assert slow.ended.wait(5)
