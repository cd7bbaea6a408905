"""click's command and group with their fixed words (Usage, Options …) in the language in force."""

from __future__ import annotations

import re
from typing import Any

import click

from regard.words import LANGUAGES, say


class _InWords:
    """What click writes around our own help texts."""

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        pieces = self.collect_usage_pieces(ctx)  # type: ignore[attr-defined]
        formatter.write_usage(ctx.command_path, " ".join(pieces), prefix=say("cli.usage") + " ")

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        option: click.Option | None = super().get_help_option(ctx)  # type: ignore[misc]
        if option is not None:
            option.help = say("cli.option.help")
        return option

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The examples, as they are typed: not wrapped, so that they can be copied."""
        if self.epilog:  # type: ignore[attr-defined]
            with formatter.section(say("cli.examples")):
                for line in self.epilog.splitlines():  # type: ignore[attr-defined]
                    formatter.write(f"{'':>{formatter.current_indent}}{line}\n")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [
            record
            for parameter in self.get_params(ctx)  # type: ignore[attr-defined]
            if isinstance(parameter, click.Option) and (record := parameter.get_help_record(ctx))
        ]
        rows = [(names, _in_words(text)) for names, text in rows]
        with formatter.section(say("cli.options")):
            formatter.write_dl(rows)


def _in_words(text: str) -> str:
    """A help text without click's own English, and with punctuation that no line begins with."""
    return re.sub(r" (?=[;:!?»])", "\u00a0", text.replace("[required]", f"[{say('cli.required')}]"))


class Command(_InWords, click.Command):
    """One command."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run it; Ctrl-C is Abort already here, or click would write an empty line first."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            abort = click.Abort()
            for note in getattr(error, "__notes__", ()):
                abort.add_note(note)
            raise abort from None


class Group(_InWords, click.Group):
    """The program with its commands."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_commands(ctx, formatter)
        super().format_options(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section(say("cli.commands")):
            formatter.write_dl(
                [(name, command.get_short_help_str(90)) for name, command in commands if command]
            )


def lang_option() -> click.Option:
    """--lang, which every command takes; the program has read it before (see program.main)."""
    return click.Option(
        ["--lang"], type=click.Choice(LANGUAGES), expose_value=False, help=say("cli.option.lang")
    )
