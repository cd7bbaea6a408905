"""A recording that is made for a page says how far it is, and ends when the page calls it off."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from starlette.testclient import TestClient

import regard
from by_hand import small_recording
from regard.serve.session import Session
from regard.serve.there import while_there
from regard.show.tiles import GivenUp


class Page:
    def __init__(self, gone: bool) -> None:
        self.gone = gone

    async def is_disconnected(self) -> bool:
        return self.gone


class Work:
    """Goes on until it is told to stop."""

    def __init__(self) -> None:
        self.ended = threading.Event()

    def __call__(self, stop: Callable[[], bool]) -> None:
        while not stop():
            time.sleep(0.01)
        self.ended.set()
        raise GivenUp


def test_work_ends_when_the_page_has_gone() -> None:
    work = Work()
    with pytest.raises(GivenUp):
        asyncio.run(while_there(Page(gone=True), threading.Event(), work))  # type: ignore[arg-type]
    assert work.ended.is_set()


def test_work_ends_when_the_server_does() -> None:
    work, ending = Work(), threading.Event()
    threading.Timer(0.1, ending.set).start()
    with pytest.raises(GivenUp):
        asyncio.run(while_there(Page(gone=False), ending, work))  # type: ignore[arg-type]
    assert work.ended.wait(5)


class Slow:
    """A stand-in for regard.record with 6 attentions, each of which waits until it is let through."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int, int]] = []
        self.through = threading.Semaphore(0)
        self.heard = threading.Semaphore(0)

    def __call__(self, *_: Any, progress: Any, **__: Any) -> Any:
        for heard in range(7):
            progress("recording", heard, 6)
            self.told.append(("recording", heard, 6))
            self.heard.release()
            assert self.through.acquire(timeout=10)
        return small_recording()


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Slow:
    made = Slow()
    monkeypatch.setattr(regard, "record", made)
    return made


def in_thread(work: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """`work` under way, and what it gives or raises."""
    gave: list[Any] = []

    def run() -> None:
        try:
            gave.append(work())
        except GivenUp as error:
            gave.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, gave


def test_the_page_can_ask_how_far_its_run_is(client: TestClient, slow: Slow) -> None:
    assert client.get("/api/progress/mine").status_code == 204
    body = {"text": ["a b"], "run": "mine"}
    thread, gave = in_thread(lambda: client.post("/api/record", json=body))
    for heard in range(7):
        assert slow.heard.acquire(timeout=10)
        assert client.get("/api/progress/mine").json() == {"what": "recording", "done": heard, "total": 6}
        assert client.get("/api/progress/another").status_code == 204
        slow.through.release()
    thread.join(10)
    assert gave[0].status_code == 200
    assert client.get("/api/progress/mine").status_code == 204


def test_a_run_that_is_called_off_ends_before_its_next_attention_and_changes_nothing(
    session: Session, slow: Slow
) -> None:
    before, off = session.payload(), threading.Event()
    thread, gave = in_thread(lambda: session.record(["a b"], run="mine", stop=off.is_set))
    assert slow.heard.acquire(timeout=10)
    off.set()
    slow.through.release()
    thread.join(10)
    assert isinstance(gave[0], GivenUp)
    assert slow.told == [("recording", 0, 6)]
    assert session.payload() is before
    assert session.progress("mine") is None
    slow.through.release(7)
    assert session.record(["a b"])["model"]["name"] == "by hand"  # the model is free again


def test_who_waits_for_another_run_is_told_so_and_may_leave(session: Session, slow: Slow) -> None:
    first, _ = in_thread(lambda: session.record(["a b"]))
    assert slow.heard.acquire(timeout=10)
    off = threading.Event()
    second, gave = in_thread(lambda: session.record(["c d"], run="second", stop=off.is_set))
    deadline = time.monotonic() + 10
    while session.progress("second") != ("waiting", 0, 0):
        assert time.monotonic() < deadline
    off.set()
    second.join(10)
    assert isinstance(gave[0], GivenUp)
    slow.through.release(7)
    first.join(10)
    assert not first.is_alive()


def test_the_bytes_of_a_model_are_told_while_it_is_fetched(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def load(name: str, *, progress: Any) -> Any:
        progress(name, 5, 90)
        seen.append(session.progress("mine"))
        return object()

    monkeypatch.setattr(regard, "load", load)
    session.record(["a b"], model="other", run="mine")
    assert seen == [("loading", 5, 90)]


def test_a_server_ends_at_control_c_though_a_recording_is_under_way() -> None:
    code = """
import sys, threading, time, types, urllib.request, regard
from http.cookiejar import CookieJar
from regard.serve.run import bind, run
from regard.serve.session import Session
def record(*_, progress, **__):
    print("running", flush=True)
    for heard in range(6000):
        progress("recording", heard, 6000)
        time.sleep(0.01)
regard.load, regard.record = (lambda *_, **__: types.SimpleNamespace(name="x")), record
def ask(link):
    browser = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPCookieProcessor(CookieJar())
    )
    browser.open(link).read()
    home = link.split("/?")[0]
    headers = {"content-type": "application/json", "origin": home}
    wish = urllib.request.Request(home + "/api/record", b'{"text": ["a b"]}', headers)
    try:
        browser.open(wish).read()
    except OSError:
        pass
told = lambda link: threading.Thread(target=ask, args=(link,), daemon=True).start()
run(Session(), bind(), browser=False, started=told)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout
    assert process.stdout.readline() == "running\n"
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=20)
    assert (process.returncode, out, errors) == (0, "", "")
