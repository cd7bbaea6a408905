"""Tokens that are read when looked at are those that would have been read at once."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from regard.record.described import Described
from regard.record.tokens import describe


class Words:
    """A tokenizer of numbered words, which counts how often it is asked."""

    unk_token_id = mask_token_id = None
    all_special_ids = (0,)

    def __init__(self) -> None:
        self.asked = 0

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        self.asked += 1
        return [f"w{i}" for i in ids]


@pytest.fixture
def words() -> Words:
    return Words()


def lazily(words: Any) -> Described:
    return Described([[0, 3], [0, 4, 5]], words, [[0, 0], None])


def test_nothing_is_read_before_somebody_looks_and_nothing_twice(words: Words) -> None:
    tokens = lazily(words)
    assert len(tokens) == 2
    assert words.asked == 0
    assert tokens[1].texts == ("w0", "w4", "w5")
    assert tokens[0].special == (True, False)
    assert words.asked == 2
    assert tokens.tokenizer is None


def test_it_is_equal_to_what_a_tuple_holds(words: Words) -> None:
    expected = (describe([0, 3], words, segments=[0, 0]), describe([0, 4, 5], words))
    tokens = lazily(words)
    assert tokens == expected
    assert expected == tuple(tokens)
    assert tokens[:1] == expected[:1]
    assert tokens == lazily(words)
    assert hash(tokens) == hash(expected)


def test_copies_need_no_tokenizer(words: Words) -> None:
    tokens = lazily(words)
    assert copy.deepcopy(tokens) == pickle.loads(pickle.dumps(tokens)) == tuple(tokens)
