"""`regard serve`: the web application without a text; the text is typed in the page."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlencode

import click

from regard.cli.frame import Command, lang_option
from regard.cli.source import DEFAULT_MODEL
from regard.errors import MissingExtra
from regard.words import get_language, say

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from regard.serve.run import Door
    from regard.serve.session import Session


def command() -> Command:
    return Command(
        "serve",
        callback=_serve,
        params=[
            click.Option(["--model"], metavar=say("cli.metavar.model"), help=say("cli.option.model")),
            *server_params(),
            lang_option(),
        ],
        help=say("cli.serve.help"),
        epilog=say("cli.serve.examples"),
    )


def server_params() -> list[click.Parameter]:
    """What every command that opens a page takes."""
    return [
        click.Option(["--port"], type=int, metavar="N", help=say("cli.option.port")),
        click.Option(["--browser/--no-browser"], default=True, help=say("cli.option.browser")),
    ]


def server() -> tuple[type[Session], Callable[[int | None], Door]]:
    """The two parts of the server that a command needs, or MissingExtra."""
    try:
        from regard.serve.run import bind
        from regard.serve.session import Session
    except ImportError as error:
        raise MissingExtra(say("errors.missing_extra", package=error.name, extra="app")) from error
    return Session, bind


def start(
    session: Session,
    door: Door,
    *,
    page: str = "",
    state: Mapping[str, object] | None = None,
    browser: bool = True,
) -> None:
    """Serve `page` until Ctrl-C, saying its link; `state` is what the page begins with."""
    from regard.serve.run import run

    chosen = {name: value for name, value in (state or {}).items() if value is not None}
    run(
        session,
        door,
        page=page,
        fragment=urlencode({**chosen, "lang": get_language()}),
        browser=browser,
        started=lambda link: click.echo(say("cli.serve.ready", link=link)),
    )


def _serve(model: str | None, port: int | None, browser: bool) -> None:
    session_class, bind = server()
    with bind(port) as door:
        start(session_class(model=model or DEFAULT_MODEL), door, browser=browser)
