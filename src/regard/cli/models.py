"""`regard models`: what can be had by name, from where, how large, and what is already here."""

from __future__ import annotations

import json

import click

from regard.cli.frame import Command, lang_option
from regard.words import say


def command() -> Command:
    return Command(
        "models",
        callback=_models,
        params=[
            click.Option(["--json", "as_json"], is_flag=True, help=say("cli.option.json")),
            lang_option(),
        ],
        help=say("cli.models.help"),
        epilog=say("cli.models.examples"),
    )


def _models(as_json: bool) -> None:
    from regard.serve.models import listing

    known = listing()
    if as_json:
        click.echo(json.dumps(known, ensure_ascii=False, indent=2))
        return
    heads = [say(f"cli.models.{column}") for column in ("name", "what", "size", "licence", "here", "sources")]
    rows = [
        [
            model["name"],
            f"{model['description']}, {model['layers']} × {model['heads']}",
            say("cli.megabytes", size=f"{model['size_bytes'] / 1e6:.0f}"),
            model["licence"],
            say("cli.models.yes" if model["here"] else "cli.models.no"),
            ", ".join(model["sources"]),
        ]
        for model in known
    ]
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    for row in (heads, *rows):
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    click.echo("\n" + say("cli.models.other"))
