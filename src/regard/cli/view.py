"""`regard view`: record a text and show it in the browser."""

from __future__ import annotations

from regard.cli.frame import Command
from regard.cli.progress import Bar
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


def _view(
    source: Source,
    layer: int | None,
    head: int | None,
    kind: str | None,
    port: int | None,
    browser: bool,
) -> None:
    session_class, bind = server()
    with bind(port) as door:  # before minutes of loading: a port in use is said at once
        recording, subject = recorded(source)
        if (layer, head, kind) != (None, None, None):  # refuse at once what the model does not have
            at = recording.first_layer(kind) if layer is None else layer
            recording.weights(layer=at, head=head, kind=kind, rows=slice(0, 1))
        session = session_class(model=source.model or recording.provenance.model or DEFAULT_MODEL)
        with Bar() as bar:
            session.show(recording, subject, progress=bar)
        state = {"layer": layer, "head": head, "kind": kind}
        start(session, door, state=state, browser=browser)
