"""A server in memory that shows a recording made by hand; the model is a stand-in."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.testclient import TestClient

import regard
from by_hand import recording_of, small_recording
from here import HOME, PORT, TOKEN
from regard.serve.app import create_app
from regard.serve.session import Session


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Stand-ins for the model: any name loads, any text is one token a word. Returns the names loaded."""
    names: list[str] = []

    def load(name: str, **_: Any) -> SimpleNamespace:
        names.append(name)
        if name == "nowhere":
            raise regard.errors.UnknownModel("There is no model nowhere.")
        return SimpleNamespace(name=name)

    def record(
        _: Any, text: str, pair: str | None = None, *, truncate: bool = False, progress: Any = None
    ) -> Any:
        words = text.split() + (pair or "").split()
        if text == "fault":
            raise ZeroDivisionError("a fault of ours")
        if len(words) > 50 and not truncate:
            said = f"The text has {len(words)} tokens; the model takes 50."
            raise regard.errors.TooLong(said, tokens=len(words), limit=50)
        return recording_of(words[:50])

    monkeypatch.setattr(regard, "load", load, raising=False)
    monkeypatch.setattr(regard, "record", record, raising=False)
    return names


@pytest.fixture
def session(loads: list[str]) -> Session:
    made = Session(model="minilm")
    made.show(small_recording())
    return made


@pytest.fixture
def connect(session: Session) -> Callable[..., TestClient]:
    """A client of the server; it has opened the link unless told otherwise."""

    def connected(*, link: bool = True, session: Session = session) -> TestClient:
        app = create_app(session, token=TOKEN, port=PORT)
        client = TestClient(app, base_url=HOME, raise_server_exceptions=False)
        if link:
            assert client.get(f"/?token={TOKEN}").status_code == 200
        return client

    return connected


@pytest.fixture
def client(connect: Callable[..., TestClient]) -> TestClient:
    return connect()
