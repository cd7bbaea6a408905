"""Start the application on this machine: take the port, say the link, open a browser, serve until Ctrl-C."""

from __future__ import annotations

import contextlib
import errno
import secrets
import socket
import threading
import webbrowser
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import uvicorn

from regard.errors import InvalidArgument
from regard.serve.app import create_app
from regard.serve.session import Session
from regard.words import say

HOST = "127.0.0.1"


@dataclass(frozen=True)
class Door:
    """A bound socket with the link that opens it; as a context it closes the socket."""

    socket: socket.socket
    token: str

    @property
    def port(self) -> int:
        return int(self.socket.getsockname()[1])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def link(self, page: str = "", fragment: str = "") -> str:
        """Where a browser finds `page` ("" is the view), with the state of the page in `fragment`."""
        end = f"#{fragment}" if fragment else ""
        return f"http://{HOST}:{self.port}/{page}?token={self.token}{end}"


def bind(port: int | None = None) -> Door:
    """Take `port` of this machine, or any free one; raises InvalidArgument when it cannot be had."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    if hasattr(socket, "SO_EXCLUSIVEADDRUSE"):  # Windows, where reusing would share the port
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
    else:  # take over a port that a server that just ended still lingers on
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port or 0))
        listener.listen(128)
    except (OSError, OverflowError) as error:
        listener.close()
        in_use = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        reason = "serve.port_in_use" if in_use else "serve.port_refused"
        raise InvalidArgument(say(reason, port=port, error=error)) from None
    return Door(listener, secrets.token_urlsafe(24))


def run(
    session: Session,
    door: Door,
    *,
    page: str = "",
    fragment: str = "",
    browser: bool = True,
    started: Callable[[str], None] = lambda link: None,
) -> None:
    """Serve until Ctrl-C. `started` hears the link once the server answers; then a browser opens."""

    def announce() -> None:
        link = door.link(page, fragment)
        started(link)
        if browser:
            # Starting a browser takes seconds, and on a machine without one it fails: the server goes on.
            threading.Thread(target=_open, args=(link,), daemon=True).start()

    app = create_app(session, token=door.token, port=door.port)
    config = uvicorn.Config(
        app,
        log_level="error",  # what is no HTTP is refused; that is nothing to tell the person
        access_log=False,
        server_header=False,
        date_header=False,
        ws="none",
        proxy_headers=False,
        timeout_graceful_shutdown=2,
    )
    with contextlib.suppress(KeyboardInterrupt):  # how a server ends is no failure
        _Server(config, announce, session.ending.set).run(sockets=[door.socket])


class _Server(uvicorn.Server):
    """uvicorn's server, which says when it has started, and when it is about to end."""

    def __init__(
        self, config: uvicorn.Config, started: Callable[[], None], ending: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._announce, self._ending = started, ending

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._announce()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._ending()
        await super().shutdown(sockets)


def _open(link: str) -> None:
    with contextlib.suppress(webbrowser.Error):
        webbrowser.open(link)
