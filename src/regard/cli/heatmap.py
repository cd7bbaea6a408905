"""`regard heatmap`: the weights of a head, or of all heads of a layer, as a figure: a file or a window."""

from __future__ import annotations

from typing import Any

import click

from regard.cli.frame import Command
from regard.cli.progress import Bar
from regard.cli.source import Source, output_param, place_params, recorded, source_params, taking_source
from regard.cli.wrote import wrote
from regard.errors import InvalidArgument, MissingExtra
from regard.words import say


def command() -> Command:
    return Command(
        "heatmap",
        callback=taking_source(_heatmap),
        params=[
            *source_params(),
            *place_params(),
            click.Option(["--numbers"], is_flag=True, help=say("cli.option.numbers")),
            output_param(required=False, help_key="cli.option.output_figure"),
        ],
        help=say("cli.heatmap.help"),
        epilog=say("cli.heatmap.examples"),
    )


def _heatmap(
    source: Source,
    layer: int | None,
    head: int | None,
    kind: str | None,
    numbers: bool,
    output: str | None,
) -> None:
    from regard.show.files import check_place
    from regard.show.heatmap import format_of, heatmap, save

    pyplot = None
    if output is None:
        pyplot = _windows()
    else:
        format_of(output)  # before the model runs: a wrong name is said at once
        check_place(output)
    recording, _ = recorded(source)
    window = pyplot.figure() if pyplot else None
    with Bar() as bar:
        place: dict[str, Any] = {"layer": layer, "head": head, "kind": kind}
        figure = heatmap(recording, **place, numbers=numbers, figure=window, progress=bar)
    if pyplot:
        pyplot.show()
    elif output is not None:
        path = save(figure, output)
        click.echo(wrote(path))


def _windows() -> Any:
    """matplotlib's module of windows; refuses where no window can be opened."""
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise MissingExtra(say("errors.missing_extra", package="matplotlib", extra="figures")) from error
    if pyplot.figure().canvas.required_interactive_framework is None:
        raise InvalidArgument(say("cli.error.no_window"))
    pyplot.close("all")
    return pyplot
