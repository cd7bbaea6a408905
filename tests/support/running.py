"""A server of this process, running for the time of a block."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from regard.serve import run as module
from regard.serve.run import Door, bind
from regard.serve.session import Session


@contextmanager
def running(session: Session) -> Iterator[Door]:
    """Serve `session` in a thread and give the door to it; when the block ends, so does the server."""
    servers: list[module._Server] = []

    class Kept(module._Server):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            servers.append(self)

    door, ready = bind(), threading.Event()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_Server", Kept)
        told = {"browser": False, "started": lambda link: ready.set()}
        thread = threading.Thread(target=module.run, args=(session, door), kwargs=told)
        thread.start()
        assert ready.wait(10)
    try:
        yield door
    finally:
        servers[0].should_exit = True
        thread.join(10)
        assert not thread.is_alive()
