"""The program: finds the command, sets the language, makes a user's mistake one line and exit status 2."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

import click

from regard.cli.frame import Command, Group, lang_option
from regard.errors import RegardError
from regard.words import LANGUAGES, Language, language_of_user, say, set_language

# The commands in the order of --help; each is the module regard.cli.NAME with a function command().
COMMANDS = ("view", "export", "heatmap", "record", "models", "explore", "learn", "serve")

USERS_MISTAKE = 2
INTERRUPTED = 130


class Program(Group):
    """The group of all commands, each imported when it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> Command | None:
        if name not in COMMANDS:
            return None
        made: Command = importlib.import_module(f"regard.cli.{name}").command()
        return made


def program() -> Program:
    """The whole command line, in the language in force."""
    return Program(
        "regard",
        params=[
            lang_option(),
            click.Option(
                ["--version"],
                is_flag=True,
                is_eager=True,
                expose_value=False,
                help=say("cli.option.version"),
                callback=_version,
            ),
        ],
        help=say("cli.help"),
        epilog=say("cli.epilog"),
        invoke_without_command=True,
        callback=click.pass_context(_help_when_alone),
    )


def _version(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked:
        from regard import __version__

        click.echo(__version__)
        ctx.exit()


def _help_when_alone(ctx: click.Context) -> None:
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its status."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    set_language(_language(arguments))
    sys.exit(run(arguments))


def run(arguments: Sequence[str]) -> int:
    """Run the command line in the language in force and return its exit status."""
    try:
        program().main(list(arguments), prog_name="regard", standalone_mode=False)
    except RegardError as error:
        return _complain(f"{error} {_notes(error)}")
    except (click.Abort, KeyboardInterrupt) as error:
        start = "\r" if sys.stderr.isatty() else ""  # over the ^C that the terminal wrote
        click.echo(f"{start}regard: {say('cli.interrupted')} {_notes(error)}".rstrip(), err=True)
        return INTERRUPTED
    except click.ClickException as error:
        return _complain(_sentence(error))
    except MemoryError:
        return _complain(say("cli.error.memory"))
    except BrokenPipeError:
        # The reader (head, less) has left: nothing more to say, and no second try when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0


def _language(arguments: Sequence[str]) -> Language:
    """The language that --lang names, wherever it stands: help is made before options are read."""
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=False):
        if argument == "--":
            break
        value = following if argument == "--lang" else argument.removeprefix("--lang=")
        for language in LANGUAGES:
            if argument.startswith("--lang") and value == language:
                return language
    return language_of_user()


def _notes(error: BaseException) -> str:
    """What was noted with an error: where the part that was complete can be found."""
    return " ".join(getattr(error, "__notes__", ()))


def _complain(sentence: str) -> int:
    click.echo(f"regard: {' '.join(sentence.split())}", err=True)
    return USERS_MISTAKE


def _sentence(error: click.ClickException) -> str:
    """What click found wrong with the arguments, in the user's language."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "regard"
    match error:
        case click.NoSuchOption():
            return say("cli.error.no_such_option", option=error.option_name, command=path)
        case click.MissingParameter():
            return say("cli.error.missing", parameter=_name(error.param), command=path)
        case click.BadParameter():
            return say("cli.error.bad_value", parameter=_name(error.param), expected=_expected(error.param))
        case _ if hasattr(error, "command_name"):
            return say("cli.error.no_such_command", name=error.command_name, known=", ".join(COMMANDS))
        case _:
            return say("cli.error.other", reason=error.format_message(), command=path)


def _name(parameter: click.Parameter | None) -> str:
    return max(parameter.opts, key=len) if parameter else "?"


def _expected(parameter: click.Parameter | None) -> str:
    if parameter and isinstance(parameter.type, click.Choice):
        return ", ".join(parameter.type.choices)
    if parameter and isinstance(parameter.type, click.IntRange):
        return say("cli.error.at_least", least=parameter.type.min)
    return say("cli.error.whole_number")
