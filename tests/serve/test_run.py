"""The server is reachable from this machine only, at a port that was free, and ends when told."""

from __future__ import annotations

import json
import socket
import time
import urllib.request
from collections.abc import Iterator
from http.cookiejar import CookieJar

import pytest

from by_hand import small_recording
from regard.errors import InvalidArgument
from regard.serve import run as module
from regard.serve.run import Door, bind
from regard.serve.session import Session
from running import running


@pytest.fixture
def door() -> Iterator[Door]:
    """A running server that shows a small recording."""
    session = Session()
    session.show(small_recording())
    with running(session) as opened:
        yield opened


def test_the_link_opens_the_page_and_its_cookie_the_rest(door: Door) -> None:
    browser = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPCookieProcessor(CookieJar())
    )
    with browser.open(door.link()) as page:
        assert b"regard-data" in page.read()
        assert "server" not in page.headers
    with browser.open(f"http://127.0.0.1:{door.port}/api/recording") as answer:
        assert json.load(answer)["model"]["name"] == "by hand"


def test_the_server_listens_on_this_machine_only(door: Door) -> None:
    assert door.socket.getsockname()[0] == "127.0.0.1"


def test_two_servers_have_different_ports_and_tokens(door: Door) -> None:
    other = bind()
    try:
        assert other.port != door.port
        assert other.token != door.token
        assert len(other.token) >= 32
    finally:
        other.socket.close()


def test_a_port_in_use_is_one_sentence() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(InvalidArgument, match=f"Port {port} is in use. Choose another, or leave out"):
            bind(port)


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_port_that_cannot_be_is_one_sentence(port: int) -> None:
    with pytest.raises(InvalidArgument, match=f"Port {port} cannot be used"):
        bind(port)


def test_the_link_carries_token_page_and_state() -> None:
    door = bind()
    try:
        link = door.link("explore.html", "layer=2&lang=fr")
        assert link == f"http://127.0.0.1:{door.port}/explore.html?token={door.token}#layer=2&lang=fr"
    finally:
        door.socket.close()


def test_a_browser_opens_when_the_server_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    door = bind()
    link = door.link()

    class Ends(module._Server):
        async def main_loop(self) -> None:
            while not opened:
                time.sleep(0.01)

    monkeypatch.setattr(module, "_Server", Ends)
    monkeypatch.setattr(module.webbrowser, "open", opened.append)
    module.run(Session(), door)
    assert opened == [link]
