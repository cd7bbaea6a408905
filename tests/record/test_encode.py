"""What is refused before a model runs, and how several texts become one batch."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import regard
from regard import words
from regard.errors import InvalidArgument, TooLong
from regard.record.encode import limit_of


@pytest.mark.parametrize("text", ["", "   ", "\n\t", [], ["fine", ""], "\u2003"])
def test_empty_text_is_refused(minilm: Any, text: Any) -> None:
    with pytest.raises(InvalidArgument, match="The text is empty"):
        regard.record(minilm, text)


def test_an_empty_second_text_is_refused(minilm: Any) -> None:
    with pytest.raises(InvalidArgument, match="The text is empty"):
        regard.record(minilm, "fine", " ")


@pytest.mark.parametrize("text", ["\x00", "\u200d\u200d", "[CLS]"])
def test_text_without_a_token_of_its_own_is_refused(minilm: Any, text: str) -> None:
    with pytest.raises(InvalidArgument, match="no token that this model knows"):
        regard.record(minilm, text)


def test_half_a_character_is_refused(minilm: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"lone surrogate.* at position 2"):
        regard.record(minilm, "ab\ud800")


def test_what_is_no_text_is_refused(minilm: Any) -> None:
    with pytest.raises(InvalidArgument, match="text must be a string or several; got int"):
        regard.record(minilm, ["a", 3])  # type: ignore[list-item]
    with pytest.raises(InvalidArgument, match="text must be a string or several; got int"):
        regard.record(minilm, 3)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="pair must hold as many texts as text, 2; got 1"):
        regard.record(minilm, ["a", "b"], "c")
    with pytest.raises(InvalidArgument, match="padding must be 'left' or 'right'; got 'both'"):
        regard.record(minilm, "a", padding="both")  # type: ignore[arg-type]


def test_too_long_a_text_is_refused_and_the_remedy_named(minilm: Any) -> None:
    with pytest.raises(TooLong, match=r"has 702 tokens and the model takes 512.*cut"):
        regard.record(minilm, "word " * 700)
    words.set_language("fr")
    try:
        with pytest.raises(TooLong, match="a 702 jetons et le modèle en accepte 512"):
            regard.record(minilm, "word " * 700)
    finally:
        words.set_language("en")


def test_truncate_cuts_and_says_so(minilm: Any) -> None:
    cut = regard.record(minilm, "first " * 400, "second " * 400, truncate=True)
    tokens = cut.tokens()
    assert len(tokens) == 512
    assert tokens.texts[-1] == "[SEP]"
    assert {0, 1} == set(tokens.segments)
    assert cut.provenance.truncated
    assert not regard.record(minilm, "short", truncate=True).provenance.truncated


def test_tensors_that_are_too_long_are_refused(tiny_bert: Any) -> None:
    with pytest.raises(TooLong, match="has 41 tokens and the model takes 40"):
        regard.record(tiny_bert, {"input_ids": torch.zeros(1, 41, dtype=torch.long)})


def test_tensors_are_checked(tiny_bert: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"inputs\['input_ids'\] must be a tensor; got list"):
        regard.record(tiny_bert, {"input_ids": [[1, 2]]})  # type: ignore[dict-item]
    with pytest.raises(InvalidArgument, match="pair goes with text"):
        regard.record(tiny_bert, {"input_ids": torch.zeros(1, 4, dtype=torch.long)}, "pair")
    with pytest.raises(InvalidArgument, match="BertModel has no tokenizer"):
        regard.record(tiny_bert, "text")


def test_a_bare_model_takes_its_tokenizer_beside_it(minilm: Any) -> None:
    recording = regard.record(minilm.model, "The cat sleeps.", tokenizer=minilm.tokenizer)
    assert recording.tokens().texts[1:3] == ("the", "cat")


def test_the_limit_is_that_of_the_table_of_positions(tiny: Any, family: str) -> None:
    # RoBERTa counts positions from the one after padding, id 1, and so loses two.
    assert limit_of(tiny) == (38 if family == "roberta" else 40)


def test_items_know_their_own_texts_tokens_and_lengths(minilm: Any) -> None:
    texts, pairs = ["One.", "Two and more words."], ["Second text here.", "B."]
    batch = regard.record(minilm, texts, pairs, padding="left")
    assert batch.items == 2
    assert batch.provenance.texts == (("One.", "Second text here."), ("Two and more words.", "B."))
    for item in range(2):
        alone = regard.record(minilm, texts[item], pairs[item])
        assert batch.tokens(item) == alone.tokens()
        assert batch.shape(0, item=item) == alone.shape(0)


def test_a_tokenizer_without_padding_takes_texts_of_one_length_only(minilm: Any) -> None:
    import copy

    tokenizer = copy.deepcopy(minilm.tokenizer)
    tokenizer.pad_token = None
    regard.record(minilm.model, ["one two", "three four"], tokenizer=tokenizer)
    with pytest.raises(InvalidArgument, match="no padding token"):
        regard.record(minilm.model, ["one", "two three"], tokenizer=tokenizer)
