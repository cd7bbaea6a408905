"""What a person reads, in French and in English: words/en.json and words/fr.json hold the same keys.

The library speaks English unless `set_language` was called; the command line sets it from --lang or the
locale.
"""

from __future__ import annotations

import json
import locale
import os
from contextvars import ContextVar
from functools import cache
from importlib.resources import files
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


@cache
def catalogue(language: Language) -> dict[str, str]:
    """All texts of a language: key -> text."""
    text = files(__package__).joinpath(f"{language}.json").read_text(encoding="utf-8")
    loaded: dict[str, str] = json.loads(text)
    return loaded
