"""Byte-pair encoding: from text to token ids and back, exactly, in a page that can be read.

    while |vocabulary| < size:  join the neighbouring pair (a, b) that occurs most often into a new token ab

It starts from the 256 bytes of UTF-8, so every text has an encoding and nothing is unknown. It is for
learning and for small experiments; for gigabytes of text use the package `tokenizers`, whose byte-level BPE
is the same idea in Rust. Source: Sennrich et al. 2016, "Neural Machine Translation of Rare Words with Subword
Units"; bytes as in Radford et al. 2019, §2.2.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from regard.errors import InvalidArgument

# a word or a run of punctuation takes the one space before it; no pair is ever joined across two pieces
_PIECES = re.compile(r"\s?\w+|\s?[^\w\s]+|\s+")

Pair = tuple[int, int]


@dataclass(frozen=True)
class BytePair:
    """A byte-level tokeniser: ids 0 … 255 are bytes, 256 + i is what merge i joins, special tokens follow.

    Args:
        merges: pairs of ids, in the order in which they were learnt.
        specials: names such as "<s>"; text never turns into them, only `special(name)` gives their ids.

    Example:
        >>> tokens = BytePair.train(["low lower lowest low low"], vocab_size=259, specials=("<s>",))
        >>> tokens.vocab_size, tokens.special("<s>")
        (260, 259)
        >>> [tokens.bytes_of(i) for i in tokens.encode("slow été")]
        [b's', b'low', b' ', b'\\xc3', b'\\xa9', b't', b'\\xc3', b'\\xa9']
        >>> tokens.decode(tokens.encode("slow été"))
        'slow été'
    """

    merges: tuple[Pair, ...] = ()
    specials: tuple[str, ...] = ()

    @classmethod
    def train(
        cls, texts: Iterable[str], vocab_size: int, *, specials: Sequence[str] = (), min_count: int = 2
    ) -> BytePair:
        """Learn the merges from texts, until there are `vocab_size` tokens (specials not counted) or no pair
        is left that occurs `min_count` times. Ties go to the pair with the smaller ids, so training is
        deterministic.

        Raises:
            InvalidArgument: if vocab_size is below 256.
        """
        if vocab_size < 256:
            raise InvalidArgument(
                f"vocab_size must be at least 256, one token for each byte; got {vocab_size}."
            )
        pieces = Counter(piece for text in texts for piece in _PIECES.findall(text))
        words = {tuple(piece.encode()): count for piece, count in pieces.items()}
        merges: list[Pair] = []
        while 256 + len(merges) < vocab_size:
            counts: Counter[Pair] = Counter()
            for word, count in words.items():
                for pair in pairwise(word):
                    counts[pair] += count
            best = min(counts, key=lambda pair: (-counts[pair], pair), default=None)
            if best is None or counts[best] < min_count:
                break
            words = {_join(word, best, 256 + len(merges)): count for word, count in words.items()}
            merges.append(best)
        return cls(tuple(merges), tuple(specials))

    @property
    def vocab_size(self) -> int:
        """Number of ids, specials included."""
        return 256 + len(self.merges) + len(self.specials)

    def encode(self, text: str) -> list[int]:
        """The ids of a text; `decode` gives the very same text back."""
        return [i for piece in _PIECES.findall(text) for i in self._encode_piece(tuple(piece.encode()))]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids. Bytes that are no UTF-8 (a character cut in two) become "�"; specials become their
        names.

        Raises:
            InvalidArgument: for an id outside the vocabulary.
        """
        return b"".join(self.bytes_of(i) for i in ids).decode("utf-8", errors="replace")

    def bytes_of(self, token: int) -> bytes:
        """The bytes that one id stands for.

        Raises:
            InvalidArgument: for an id outside the vocabulary.
        """
        if not 0 <= token < self.vocab_size:
            raise InvalidArgument(f"token must lie in [0, {self.vocab_size}); got {token}.")
        if token < len(self._bytes):
            return self._bytes[token]
        return self.specials[token - len(self._bytes)].encode()

    def special(self, name: str) -> int:
        """The id of a special token.

        Raises:
            InvalidArgument: if there is none of that name.
        """
        if name not in self.specials:
            raise InvalidArgument(f"name must be one of the specials {self.specials}; got {name!r}.")
        return 256 + len(self.merges) + self.specials.index(name)

    def _encode_piece(self, ids: tuple[int, ...]) -> tuple[int, ...]:
        while len(ids) > 1:  # the earliest learnt merge first, as in training
            best = min(pairwise(ids), key=lambda pair: self._ranks.get(pair, len(self._ranks)))
            if best not in self._ranks:
                break
            ids = _join(ids, best, 256 + self._ranks[best])
        return ids

    @cached_property
    def _ranks(self) -> dict[Pair, int]:
        return {pair: rank for rank, pair in enumerate(self.merges)}

    @cached_property
    def _bytes(self) -> list[bytes]:
        table = [bytes([byte]) for byte in range(256)]
        for first, second in self.merges:
            table.append(table[first] + table[second])
        return table


def _join(ids: tuple[int, ...], pair: Pair, new: int) -> tuple[int, ...]:
    """The ids with every occurrence of the pair replaced, from left to right."""
    joined, i = [], 0
    while i < len(ids):
        found = ids[i : i + 2] == pair
        joined.append(new if found else ids[i])
        i += 2 if found else 1
    return tuple(joined)
