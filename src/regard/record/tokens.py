"""Tokens as a person reads them (" été", never "ĠÃ©tÃ©"): special or not, of which text, and where in it.

How pieces are shown, by the kind of tokenizer:
- byte-level pieces (GPT-2 and kin) are decoded; bytes that are no whole character are written ⟨c3⟩;
- SentencePiece's ▁ becomes the space that it stands for;
- WordPiece's ## stays: it says that the piece continues a word, and "ing" alone would be another token.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Any


@dataclass(frozen=True)
class Tokens:
    """One sequence of one item. All tuples have the same length."""

    texts: tuple[str, ...]
    special: tuple[bool, ...]
    segments: tuple[int, ...]
    ids: tuple[int, ...]
    offsets: tuple[tuple[int, int] | None, ...]

    def __len__(self) -> int:
        return len(self.texts)

    def at(self, positions: Sequence[int]) -> Tokens:
        """The tokens at these positions."""
        columns = {field.name: getattr(self, field.name) for field in fields(self)}
        return Tokens(**{name: tuple(column[i] for i in positions) for name, column in columns.items()})

    def followed_by(self, other: Tokens) -> Tokens:
        """These tokens and then the other ones."""
        return Tokens(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


def describe(
    ids: Sequence[int],
    tokenizer: Any = None,
    *,
    segments: Sequence[int | None] | None = None,
    offsets: Sequence[tuple[int, int]] | None = None,
) -> Tokens:
    """Tokens of `ids`.

    Args:
        ids: token ids of one sequence.
        tokenizer: a Hugging Face tokenizer; without one, a token's text is its id.
        segments: 0 or 1 for each token, None where the tokenizer put it in: it closes the text before it.
        offsets: (start, end) of each token in its source text.
    """
    special_ids = _special_ids(tokenizer)
    special = tuple(int(i) in special_ids for i in ids)
    known: list[int] = []
    for segment in segments if segments is not None else [0] * len(ids):
        known.append(segment if segment is not None else known[-1] if known else 0)
    spans: list[tuple[int, int] | None] = [None] * len(ids)
    if offsets is not None:
        spans = [
            None if mark or end <= start else (start, end)
            for mark, (start, end) in zip(special, offsets, strict=True)
        ]
    return Tokens(
        texts=tuple(_texts(ids, tokenizer, special)),
        special=special,
        segments=tuple(known),
        ids=tuple(int(i) for i in ids),
        offsets=tuple(spans),
    )


def numbered(count: int) -> Tokens:
    """Tokens of which nothing is known but their position."""
    return Tokens(
        tuple(str(i) for i in range(count)), (False,) * count, (0,) * count, (-1,) * count, (None,) * count
    )


def _special_ids(tokenizer: Any) -> frozenset[int]:
    """Ids that structure the input; those of unknown and masked words are not among them."""
    if tokenizer is None:
        return frozenset()
    stand_for_words = {tokenizer.unk_token_id, tokenizer.mask_token_id}
    return frozenset(i for i in tokenizer.all_special_ids if i not in stand_for_words)


def _texts(ids: Sequence[int], tokenizer: Any, special: Sequence[bool]) -> list[str]:
    if tokenizer is None:
        return [str(int(i)) for i in ids]
    read = _reader(tokenizer)
    pieces = tokenizer.convert_ids_to_tokens([int(i) for i in ids])
    added = getattr(tokenizer, "added_tokens_decoder", {})
    return [
        str(piece) if mark or int(i) in added else read(piece)
        for i, piece, mark in zip(ids, (p if p is not None else "" for p in pieces), special, strict=True)
    ]


def _reader(tokenizer: Any) -> Callable[[str], str]:
    """The function that makes a piece of this tokenizer readable."""
    kinds = _decoder_kinds(tokenizer)
    if "ByteLevel" in kinds:
        return _from_byte_level
    if "Metaspace" in kinds or "Replace" in kinds:
        return _from_sentencepiece
    return str


def _decoder_kinds(tokenizer: Any) -> set[str]:
    """Names of the steps by which a fast tokenizer turns pieces into text; empty for other tokenizers."""
    decoder = getattr(getattr(tokenizer, "backend_tokenizer", None), "decoder", None)
    if decoder is None:
        return set()
    described = json.loads(decoder.__getstate__())
    steps = described.get("decoders", [described])
    return {str(step.get("type")) for step in steps}


def _from_sentencepiece(piece: str) -> str:
    if (
        len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">")
    ):  # a byte that has no piece of its own
        return _from_bytes(bytes([int(piece[3:5], 16)]))
    return piece.replace("▁", " ")


def _from_byte_level(piece: str) -> str:
    table = _byte_of_character()
    if not all(character in table for character in piece):
        return piece
    return _from_bytes(bytes(table[character] for character in piece))


def _from_bytes(raw: bytes) -> str:
    """Text of bytes; those that are no whole character by their value."""
    return raw.decode("utf-8", errors="backslashreplace") if _is_text(raw) else _with_marks(raw)


def _is_text(raw: bytes) -> bool:
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _with_marks(raw: bytes) -> str:
    shown, rest = "", raw
    while rest:
        try:
            return shown + rest.decode("utf-8")
        except UnicodeDecodeError as error:
            shown += rest[: error.start].decode("utf-8")
            bad = rest[error.start : error.end]
            shown += "".join(f"⟨{byte:02x}⟩" for byte in bad)
            rest = rest[error.end :]
    return shown


@cache
def _byte_of_character() -> dict[str, int]:
    """The byte behind each character of byte-level pieces: itself when printable, others from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(b): b for b in printable} | {chr(0x100 + i): b for i, b in enumerate(others)}
