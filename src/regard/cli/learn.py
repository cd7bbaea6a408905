"""`regard learn`: ten short chapters on attention, in the browser or as a folder of offline pages."""

from __future__ import annotations

import click

from regard.cli.frame import Command, lang_option
from regard.cli.serve import server, server_params, start
from regard.cli.wrote import wrote
from regard.words import say


def command() -> Command:
    return Command(
        "learn",
        callback=_learn,
        params=[
            click.Option(
                ["-o", "--output"], metavar=say("cli.metavar.folder"), help=say("cli.option.output_lessons")
            ),
            *server_params(),
            lang_option(),
        ],
        help=say("cli.learn.help"),
        epilog=say("cli.learn.examples"),
    )


def _learn(output: str | None, port: int | None, browser: bool) -> None:
    if output is not None:
        from regard.lessons.folder import write_folder

        files = write_folder(output)
        size = sum(path.stat().st_size for path in files)
        click.echo(wrote(files[-1], size))
        return
    session_class, bind = server()
    start(session_class(), bind(port), page="learn.html", browser=browser)
