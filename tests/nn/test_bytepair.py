"""BytePair: exact round trips, deterministic training, honest errors."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import InvalidArgument
from regard.nn import BytePair

TEXT = "le chat noir dort, le chat blanc mange ; le chien dort. été, cœur, 猫 "
TRAINED = BytePair.train([TEXT] * 4, vocab_size=290, specials=("<s>", "</s>"))


@given(st.text())
def test_decode_undoes_encode_for_every_text(text):
    assert TRAINED.decode(TRAINED.encode(text)) == text
    assert BytePair().decode(BytePair().encode(text)) == text


@given(st.text())
def test_text_never_becomes_a_special_token(text):
    assert all(i < 290 for i in TRAINED.encode(text + "<s>"))


def test_merges_join_the_most_frequent_pair_first():
    tokens = BytePair.train(["aaab aaab b"], vocab_size=258)
    assert [tokens.bytes_of(256 + i) for i in range(len(tokens.merges))] == [b"aa", b"ab"]


def test_training_is_deterministic_and_compresses():
    assert BytePair.train([TEXT] * 4, vocab_size=290, specials=("<s>", "</s>")) == TRAINED
    assert len(TRAINED.merges) == 34
    assert len(TRAINED.encode(TEXT)) < 0.6 * len(TEXT.encode())


def test_training_stops_when_nothing_repeats():
    assert BytePair.train(["abc"], vocab_size=1000).merges == ()


def test_no_token_spans_two_words():
    frequent = BytePair.train(["to be to be to be"] * 10, vocab_size=300)
    assert all(b" " not in frequent.bytes_of(256 + i)[1:] for i in range(len(frequent.merges)))


def test_special_tokens_come_last():
    assert (TRAINED.special("<s>"), TRAINED.special("</s>"), TRAINED.vocab_size) == (290, 291, 292)
    assert TRAINED.decode([290, *TRAINED.encode("chat")]) == "<s>chat"


def test_half_a_character_shows_as_replaced():
    assert BytePair().decode(list("é".encode())[:1]) == "�"


def test_errors_name_what_was_expected():
    with pytest.raises(
        InvalidArgument, match=r"vocab_size must be at least 256, one token for each byte; got 10"
    ):
        BytePair.train([TEXT], vocab_size=10)
    with pytest.raises(InvalidArgument, match=r"token must lie in \[0, 292\); got 292"):
        TRAINED.decode([292])
    with pytest.raises(InvalidArgument, match=r"one of the specials \('<s>', '</s>'\); got '<pad>'"):
        TRAINED.special("<pad>")
