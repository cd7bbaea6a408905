"""`regard view`: record a text and show it in the browser."""

from __future__ import annotations

import click

from regard.cli.frame import Command
from regard.cli.serve import server, server_params, start
from regard.cli.source import DEFAULT_MODEL, Source, place_params, recorded, source_params, taking_source
from regard.words import say


def command() -> Command:
    return Command(
        "view",
        callback=taking_source(_view),
        params=[*source_params(), *place_params(), *server_params()],
        help=say("cli.view.help"),
        epilog=say("cli.view.examples"),
    )


def _view(source: Source, layer: int | None, head: int | None, port: int | None, browser: bool) -> None:
    session_class, bind = server()
    door = bind(port)  # before minutes of loading: a port in use is said at once
    click.echo(say("cli.view.recording"), err=True)
    recording, subject = recorded(source)
    if layer is not None or head is not None:
        recording.rows(layer=layer or 0, head=head or 0, row=0)  # refuses what the model does not have
    session = session_class(model=source.model or (subject.name if subject else DEFAULT_MODEL))
    session.show(recording, subject)
    state = {"layer": layer, "head": head}
    start(
        session,
        door,
        state={name: value for name, value in state.items() if value is not None},
        browser=browser,
    )
