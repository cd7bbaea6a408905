"""Sentences that were said in one language are said again in another."""

from __future__ import annotations

import re

import pytest

from regard.words import LANGUAGES, anew, catalogue, decimal, key_of

NOTES = [key for key in catalogue("en") if key.startswith("notes.")]
VALUES = (
    "7",
    "layers.0, 1 (GatedDeltaNet); head (Odd)",
    "0.001",
    "text: with a colon, and 2 sentences. Or so",
)


@pytest.mark.parametrize("key", NOTES)
@pytest.mark.parametrize("value", VALUES)
def test_every_note_is_found_again_in_either_language_with_what_it_was_filled_with(
    key: str, value: str
) -> None:
    gaps = set(re.findall(r"{(\w+)}", catalogue("en")[key]))
    filled = {
        language: catalogue(language)[key].format(**dict.fromkeys(gaps, decimal(value, language)))
        for language in LANGUAGES
    }
    for recorded in LANGUAGES:
        for read in LANGUAGES:
            assert anew(filled[recorded], read) == filled[read]
        assert key_of(filled[recorded]) == key


def test_what_is_no_note_stays_as_it_is() -> None:
    for text in ("", "A sentence of an older version.", "{count}", "Enregistrement …"):
        assert anew(text, "fr") == text
        assert key_of(text) is None


def test_decimals_follow_the_sign_of_the_language() -> None:
    assert [decimal(number, "fr") for number in ("0.49", "3.1e-07", "0,49")] == ["0,49", "3,1e-07", "0,49"]
    assert [decimal(number, "en") for number in ("0.49", "0,49")] == ["0.49", "0.49"]
    for text in ("7", "layers.0, 1", "1.2.3", "2.5 of"):
        assert decimal(text, "fr") == text
