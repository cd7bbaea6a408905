"""Tokens are shown as a person reads them, however the tokenizer spells; hostile ones stay what they are."""

from __future__ import annotations

from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

import regard
from regard.record.tokens import Tokens, describe, numbered


def byte_level(*pieces: str) -> Any:
    """A byte-level tokenizer that knows every byte, and these pieces in their own spelling."""
    vocabulary = {token: i for i, token in enumerate([*sorted(pre_tokenizers.ByteLevel.alphabet()), *pieces])}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def test_byte_level_pieces_are_decoded() -> None:
    tokenizer = byte_level("ĠÃ©tÃ©", "Ċ", "Ġ")
    ids = tokenizer.convert_tokens_to_ids(["ĠÃ©tÃ©", "Ġ", "a"])
    assert describe(ids, tokenizer).texts == (" été", " ", "a")


def test_bytes_that_are_no_whole_character_are_written_by_their_value() -> None:
    tokenizer = byte_level("ĠÃ")
    ids = tokenizer.convert_tokens_to_ids(["ĠÃ", "©"])
    assert describe(ids, tokenizer).texts == (" ⟨c3⟩", "⟨a9⟩")


def test_sentencepiece_marks_become_spaces_and_bytes_characters() -> None:
    pieces = {"<unk>": 0, "▁été": 1, "<0x41>": 2, "<0xC3>": 3, "s": 4}
    tokenizer = Tokenizer(models.WordLevel(pieces, unk_token="<unk>"))
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback()])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>")
    assert describe([1, 2, 3, 4], fast).texts == (" été", "A", "⟨c3⟩", "s")


def test_wordpiece_continuations_keep_their_mark(minilm: Any) -> None:
    tokens = regard.record(minilm, "unaffable embeddings").tokens()
    assert tokens.texts == ("[CLS]", "una", "##ffa", "##ble", "em", "##bed", "##ding", "##s", "[SEP]")


def test_offsets_lead_back_into_the_text(minilm: Any) -> None:
    text = "Un Café — naïve 🙂 end"
    tokens = regard.record(minilm, text).tokens()
    assert tokens.offsets[0] is None
    assert tokens.offsets[-1] is None
    found = [text[span[0] : span[1]] for span in tokens.offsets if span is not None]
    assert found == ["Un", "Café", "—", "naïve", "🙂", "end"]


def test_offsets_of_a_pair_are_into_the_text_of_each(minilm: Any) -> None:
    texts = ("He put the pen down.", "It was full.")
    tokens = regard.record(minilm, *texts).tokens()
    spelled = [
        texts[segment][span[0] : span[1]].lower()
        for segment, span in zip(tokens.segments, tokens.offsets, strict=True)
        if span is not None
    ]
    assert spelled == [text for text, mark in zip(tokens.texts, tokens.special, strict=True) if not mark]


def test_specials_belong_to_the_text_that_they_close(minilm: Any) -> None:
    tokens = regard.record(minilm, "One two.", "Three.").tokens()
    assert tokens.texts == ("[CLS]", "one", "two", ".", "[SEP]", "three", ".", "[SEP]")
    assert tokens.segments == (0, 0, 0, 0, 0, 1, 1, 1)
    assert tokens.special == (True, False, False, False, True, False, False, True)


def test_two_separators_between_texts_both_close_the_first() -> None:
    pieces = {"<s>": 0, "</s>": 1, "a": 2, "b": 3, "<unk>": 4}
    tokenizer = Tokenizer(models.WordLevel(pieces, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", 0), ("</s>", 1)],
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", cls_token="<s>", sep_token="</s>"
    )
    encoding = fast("a", "b b")
    tokens = describe(encoding["input_ids"], fast, segments=encoding.sequence_ids(0))
    assert tokens.texts == ("<s>", "a", "</s>", "</s>", "b", "b", "</s>")
    assert tokens.segments == (0, 0, 0, 0, 1, 1, 1)


def test_unknown_and_mask_tokens_stand_for_words_and_are_not_special(minilm: Any) -> None:
    tokens = regard.record(minilm, "The [MASK] sleeps \U0001faf6").tokens()
    assert tokens.texts == ("[CLS]", "the", "[MASK]", "sleeps", "[UNK]", "[SEP]")
    assert tokens.special == (True, False, False, False, False, True)


@pytest.mark.parametrize(
    "text",
    [
        "</script><img src=x onerror=alert(1)>",
        "\u202eright to left\u202c שלום مرحبا",
        "a\x00b",
        "👩‍👩‍👧‍👦 🏳️‍🌈",
        "__QUERY__ {text} %s",
        "x" * 10_000,
        "\ufeffbyte order",
        "combining e\u0301\u0301\u0301",
    ],
    ids=["markup", "right to left", "nul", "emoji", "templates", "10,000 letters", "bom", "combining"],
)
def test_hostile_texts_are_recorded_and_nothing_else(minilm: Any, text: str) -> None:
    recording = regard.record(minilm, text)
    tokens = recording.tokens()
    assert recording.provenance.text == (text,)
    assert recording.shape(0)[1] == len(tokens) >= 3
    for span in tokens.offsets:
        assert span is None or 0 <= span[0] < span[1] <= len(text)


def test_tokens_without_a_tokenizer_are_their_ids_or_their_positions() -> None:
    assert describe([7, 12]).texts == ("7", "12")
    assert numbered(2).texts == ("0", "1")


def test_tokens_at_positions_keep_their_columns_in_step() -> None:
    tokens = Tokens(("a", "b", "c"), (True, False, False), (0, 0, 1), (1, 2, 3), (None, (0, 1), (1, 2)))
    assert tokens.at([2, 0]) == Tokens(("c", "a"), (False, True), (1, 0), (3, 1), ((1, 2), None))
