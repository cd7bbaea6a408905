"""Tokens as labels of a figure: every character visible and drawn by a font that has it."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache

from matplotlib import font_manager
from matplotlib.ft2font import FT2Font

MOST_CHARACTERS = 24
_VISIBLE = {"\n": "↵", "\r": "␍", "\t": "⇥", "\u00a0": " "}
_BASE = "DejaVu Sans"  # comes with matplotlib


def labels(texts: Iterable[str], most: int | None = None) -> tuple[list[str], list[str]]:
    """The texts as they can be drawn, cut to `most` characters, and the fonts that draw them, best first.

    A character that no font of this machine has is written as its code point, such as U+5B57.
    """
    shown = [_visible(text, most) for text in texts]
    families = _fonts_for(frozenset("".join(shown)))
    drawable = frozenset().union(*(_characters(family) for family in families))
    return [_drawable(text, drawable) for text in shown], list(families)


def _visible(text: str, most: int | None) -> str:
    text = "".join(_VISIBLE.get(character, character) for character in text)
    if most is not None and len(text) > most:
        text = text[: most - 1] + "…"
    return "".join(_code(c) if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co", "Cn") else c for c in text)


def _drawable(text: str, drawable: frozenset[str]) -> str:
    return "".join(character if character in drawable else _code(character) for character in text)


def _code(character: str) -> str:
    return f"U+{ord(character):04X}"


@cache
def _fonts_for(characters: frozenset[str]) -> Sequence[str]:
    families = [_BASE]
    missing = characters - _characters(_BASE)
    # Only a text in a script that the base font lacks makes us look through the other fonts of the machine.
    for family in _upright_fonts() if missing else ():
        if not missing:
            break
        if found := missing & _characters(family):
            families.append(family)
            missing -= found
    return families


@cache
def _upright_fonts() -> dict[str, str]:
    """The ordinary face of every family of this machine: family -> file."""
    faces = [
        font
        for font in font_manager.fontManager.ttflist
        if font.style == "normal" and font.stretch == "normal" and font.weight in (400, "normal", "regular")
    ]
    # "Last Resort" has the same box for every character: a code point says more.
    return {font.name: font.fname for font in faces if not font.name.startswith("Last Resort")}


@cache
def _characters(family: str) -> frozenset[str]:
    """The characters that a font family can draw."""
    try:
        return frozenset(map(chr, FT2Font(_upright_fonts()[family]).get_charmap()))
    except (KeyError, OSError, RuntimeError):  # a font that is listed, and damaged or gone
        return frozenset()
