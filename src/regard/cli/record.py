"""`regard record`: run a model on a text and keep the recording in a file."""

from __future__ import annotations

import json
from pathlib import Path

import click

from regard.cli.frame import Command
from regard.cli.source import Source, output_param, recorded, source_params, taking_source
from regard.cli.wrote import wrote
from regard.words import anew, say


def command() -> Command:
    return Command(
        "record",
        callback=taking_source(_record),
        params=[
            *source_params(),
            output_param(required=True, help_key="cli.option.output_recording"),
            click.Option(["--json", "as_json"], is_flag=True, help=say("cli.option.json")),
        ],
        help=say("cli.record.help"),
        epilog=say("cli.record.examples"),
    )


def _record(source: Source, output: str, as_json: bool) -> None:
    from regard.show.files import check_place

    check_place(output)
    recording, subject = recorded(source, output)
    if subject is None:  # it was there already
        recording.save(output)
    path, proof = Path(output), recording.proof
    summary = {
        "path": str(path),
        "bytes": path.stat().st_size,
        "tokens": len(recording.tokens().texts),
        "sites": len(recording.sites),
        "max_error": proof.max_error if proof.rows else None,
    }
    if as_json:
        click.echo(json.dumps(summary))
    else:
        click.echo(wrote(path))
        key = "cli.record.proof" if proof.rows else "cli.record.no_proof"
        click.echo(say(key, **summary, note=anew(proof.note)).rstrip())
