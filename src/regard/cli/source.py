"""What a command looks at: one text, a pair of texts, a text file, or a recording made earlier."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from regard.cli.frame import lang_option
from regard.cli.progress import Bar
from regard.errors import InvalidArgument
from regard.words import say
from regard.words.system import reason_of

if TYPE_CHECKING:
    from regard.models.loading import Subject
    from regard.record.recording import Recording

DEFAULT_MODEL = "minilm"
KINDS = ("self", "causal", "cross")
FORMS = ("qk", "weights", "top_k")
DTYPES = ("float32", "float16", "bfloat16")
CHOICES = ("layers", "heads", "kinds", "keep", "top", "dtype")
RECORDING_SUFFIXES = (".regard", ".regard.partial")  # the second: of one that was never finished


@dataclass(frozen=True)
class Source:
    """The arguments that every command which looks at something takes, as they were given."""

    texts: tuple[str, ...]
    pair: str | None = None
    file: str | None = None
    model: str | None = None
    truncate: bool = False
    chat: bool = False
    generate: int | None = None
    layers: tuple[int, ...] | None = None
    heads: tuple[int, ...] | None = None
    kinds: tuple[str, ...] | None = None
    keep: str | None = None
    top: int | None = None
    dtype: str | None = None

    def recording_file(self) -> str | None:
        """The recording that is asked for, or None when a text is."""
        named = [*self.texts, *([self.file] if self.file else [])]
        if not any(name.endswith(RECORDING_SUFFIXES) for name in named):
            return None
        if len(named) > 1 or self.pair is not None:
            raise InvalidArgument(say("cli.error.recording_and_text", file=named[0]))
        if self.model is not None:
            raise InvalidArgument(say("cli.error.recording_and_model", file=named[0]))
        if chosen := [name for name in CHOICES if getattr(self, name) is not None]:
            raise InvalidArgument(say("cli.error.recording_and_choice", file=named[0], option=chosen[0]))
        return named[0]

    def choice(self) -> dict[str, Any]:
        """What of the recording is kept, as `regard.record` takes it."""
        if self.top is not None and self.keep not in (None, "top_k"):
            raise InvalidArgument(say("cli.error.top_alone", got=self.keep))
        what = self.keep or ("qk" if self.top is None else "top_k")
        where = {"layers": self.layers, "heads": self.heads, "kinds": self.kinds}
        return {**where, "keep": what, "k": self.top}

    def text(self) -> tuple[str, ...]:
        """The text, or the two of a pair."""
        texts = self.texts if self.pair is None else (*self.texts, self.pair)
        texts = tuple(_read(text) if text == "-" else text for text in texts)
        if self.file is not None:
            texts = (_read(self.file), *texts)
        if not texts:
            raise InvalidArgument(say("cli.error.no_text"))
        if len(texts) > 2:
            raise InvalidArgument(say("cli.error.too_many_texts", got=len(texts)))
        if not all(text.strip() for text in texts):  # said before seconds of loading
            raise InvalidArgument(say("errors.empty_text"))
        return texts


def source_params() -> list[click.Parameter]:
    """The arguments and options of a Source, in the language in force."""
    return [
        click.Argument(["texts"], nargs=-1, metavar=say("cli.metavar.texts")),
        click.Option(["--pair"], metavar=say("cli.metavar.text"), help=say("cli.option.pair")),
        click.Option(["--file"], metavar=say("cli.metavar.file"), help=say("cli.option.file")),
        click.Option(["--model"], metavar=say("cli.metavar.model"), help=say("cli.option.model")),
        click.Option(["--truncate"], is_flag=True, help=say("cli.option.truncate")),
        click.Option(["--chat"], is_flag=True, help=say("cli.option.chat")),
        click.Option(
            ["--generate"], type=click.IntRange(min=1), metavar="N", help=say("cli.option.generate")
        ),
        *_choice_params(),
        lang_option(),
    ]


def _choice_params() -> list[click.Parameter]:
    """What of a new recording is kept."""
    return [
        click.Option(["--layers"], callback=_numbers, metavar="0,3-5", help=say("cli.option.layers")),
        click.Option(["--heads"], callback=_numbers, metavar="0,3-5", help=say("cli.option.heads")),
        click.Option(["--kinds"], callback=_kinds, metavar="self,…", help=say("cli.option.kinds")),
        click.Option(["--keep"], type=click.Choice(FORMS), help=say("cli.option.keep")),
        click.Option(["--top"], type=click.IntRange(min=1), metavar="N", help=say("cli.option.top")),
        click.Option(["--dtype"], type=click.Choice(DTYPES), help=say("cli.option.dtype")),
    ]


def _numbers(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[int, ...] | None:
    """Numbers and ranges: 0,3-5 is 0, 3, 4 and 5."""
    if value is None:
        return None
    found: set[int] = set()
    for part in value.split(","):
        written = re.fullmatch(r"\s*(\d{1,5})(?:\s*-\s*(\d{1,5}))?\s*", part)
        first, last = (int(written[1]), int(written[2] or written[1])) if written else (1, 0)
        if last < first:
            raise InvalidArgument(say("cli.error.bad_numbers", option=param.name, got=value))
        found.update(range(first, last + 1))
    return tuple(sorted(found))


def _kinds(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    """Kinds of attention, with commas between them."""
    if value is None:
        return None
    kinds = tuple(part.strip() for part in value.split(","))
    if wrong := [kind for kind in kinds if kind not in KINDS]:
        raise InvalidArgument(say("cli.error.bad_kinds", known=", ".join(KINDS), got=wrong[0]))
    return kinds


def place_params() -> list[click.Parameter]:
    """Which layer, head and kind of attention."""
    return [
        click.Option(["--layer"], type=int, metavar="N", help=say("cli.option.layer")),
        click.Option(["--head"], type=int, metavar="N", help=say("cli.option.head")),
        click.Option(["--kind"], type=click.Choice(KINDS), help=say("cli.option.kind")),
    ]


def output_param(*, required: bool, help_key: str) -> click.Option:
    """-o, the file to write."""
    return click.Option(
        ["-o", "--output"], required=required, metavar=say("cli.metavar.file"), help=say(help_key)
    )


def taking_source(function: Callable[..., None]) -> Callable[..., None]:
    """Let a command take one Source instead of its many arguments."""

    def called(**given: Any) -> None:
        source = Source(**{name: given.pop(name) for name in Source.__dataclass_fields__})
        function(source, **given)

    return called


def recorded(source: Source, path: str | None = None) -> tuple[Recording, Subject | None]:
    """The recording that `source` names: opened, or made with its model (then the model comes along).

    With `path` one that is made goes straight to this file.
    """
    if file := source.recording_file():
        import regard

        return regard.open(file), None
    texts, choice = source.text(), source.choice()  # what is wrong with them is said before loading
    with Bar(say("cli.recording")) as bar:
        import torch

        import regard

        subject: Subject = regard.load(source.model or DEFAULT_MODEL, progress=bar.download)
        recording = regard.record(
            subject,
            *texts,
            truncate=source.truncate,
            chat=source.chat,
            generate=source.generate,
            path=path,
            progress=bar,
            dtype=None if source.dtype is None else getattr(torch, source.dtype),
            **choice,
        )
    return recording, subject


def _read(file: str) -> str:
    try:
        raw = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return raw.decode("utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError:
        raise InvalidArgument(say("cli.error.not_utf8", file=file)) from None
    except (OSError, ValueError) as error:
        reason = reason_of(error)
        raise InvalidArgument(say("cli.error.cannot_read", file=file, reason=reason)) from None
