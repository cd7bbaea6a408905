"""What a person reads, in French and in English: words/en.json and words/fr.json hold the same keys.

The library speaks English unless `set_language` was called; the command line sets it from --lang or the
locale.
"""

from __future__ import annotations

import json
import locale
import os
import re
from contextvars import ContextVar
from functools import cache
from importlib.resources import files
from string import Formatter
from typing import Any, Literal

Language = Literal["en", "fr"]
LANGUAGES: tuple[Language, ...] = ("en", "fr")

_language: ContextVar[Language] = ContextVar("regard_language", default="en")


def set_language(language: Language) -> None:
    """Choose the language of everything said from here on in this context."""
    _language.set(language)


def get_language() -> Language:
    """The language in force."""
    return _language.get()


def language_of_user() -> Language:
    """French when the user's locale says so, else English."""
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        if value := os.environ.get(name):
            return "fr" if value.lower().startswith("fr") else "en"
    return "fr" if (locale.getlocale()[0] or "").lower().startswith("fr") else "en"


def say(key: str, **values: Any) -> str:
    """The text of `key`, such as ``errors.unknown_model``, with ``{name}`` filled from `values`."""
    return catalogue(get_language())[key].format(**values)


def anew(note: str, language: Language | None = None) -> str:
    """A note of a recording, said again in `language` (that in force when not given).

    A file keeps notes as sentences, in the language of whoever recorded: any program can show them, and an
    old file stays readable when keys change. Here the sentence is found in the catalogues again, with what
    it was filled with; one that is in none of them is left as it is.
    """
    chosen = language or get_language()
    for key, pattern in _patterns():
        if found := pattern.fullmatch(note):
            values = {name: decimal(value, chosen) for name, value in found.groupdict().items()}
            return catalogue(chosen)[key].format(**values)
    return note


def key_of(note: str) -> str | None:
    """The key of a note of a recording, in whatever language it was said; None for one of no catalogue."""
    return next((key for key, pattern in _patterns() if pattern.fullmatch(note)), None)


def decimal(number: str, language: Language | None = None) -> str:
    """A written number, such as 0.49, with the language’s sign before its decimals; else unchanged."""
    if not re.fullmatch(r"\d+[.,]\d+(e[-+]?\d+)?", number):
        return number
    return number.replace(".", ",") if (language or get_language()) == "fr" else number.replace(",", ".")


@cache
def _patterns() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """(key, what its text looks like when it is filled) of all notes, in every language."""
    return tuple(
        (key, re.compile(_pattern(text), re.DOTALL))
        for language in LANGUAGES
        for key, text in catalogue(language).items()
        if key.startswith("notes.")
    )


def _pattern(text: str) -> str:
    parts, known = "", set[str]()
    for literal, name, _, _ in Formatter().parse(text):
        parts += re.escape(literal)
        if name:
            parts += f"(?P={name})" if name in known else f"(?P<{name}>.+?)"
            known.add(name)
    return parts


@cache
def catalogue(language: Language) -> dict[str, str]:
    """All texts of a language: key -> text."""
    text = files(__package__).joinpath(f"{language}.json").read_text(encoding="utf-8")
    loaded: dict[str, str] = json.loads(text)
    return loaded
