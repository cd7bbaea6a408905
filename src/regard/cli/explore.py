"""`regard explore`: move the query of a word and see who answers, in the browser or as one offline file."""

from __future__ import annotations

import click

from regard.cli.frame import Command, lang_option
from regard.cli.serve import server, server_params, start
from regard.cli.source import output_param
from regard.cli.wrote import wrote
from regard.words import say


def command() -> Command:
    return Command(
        "explore",
        callback=_explore,
        params=[
            output_param(required=False, help_key="cli.option.output_explorer"),
            *server_params(),
            lang_option(),
        ],
        help=say("cli.explore.help"),
        epilog=say("cli.explore.examples"),
    )


def _explore(output: str | None, port: int | None, browser: bool) -> None:
    if output is not None:
        from regard.show.pages import write_page

        path = write_page("explore", output)
        click.echo(wrote(path))
        return
    session_class, bind = server()
    start(session_class(), bind(port), page="explore.html", browser=browser)
