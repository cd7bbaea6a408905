"""`regard export`: the view of a text as one HTML file."""

from __future__ import annotations

import click

from regard.cli.frame import Command
from regard.cli.progress import Bar
from regard.cli.source import Source, output_param, recorded, source_params, taking_source
from regard.cli.wrote import wrote
from regard.words import say


def command() -> Command:
    return Command(
        "export",
        callback=taking_source(_export),
        params=[*source_params(), output_param(required=True, help_key="cli.option.output_html")],
        help=say("cli.export.help"),
        epilog=say("cli.export.examples"),
    )


def _export(source: Source, output: str) -> None:
    import regard
    from regard.show.files import check_place

    check_place(output)
    recording, _ = recorded(source)
    with Bar() as bar:
        path = regard.export(recording, output, progress=bar)
    click.echo(wrote(path))
