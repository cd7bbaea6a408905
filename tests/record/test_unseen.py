"""A recording says which layers do not attend, and which attentions it does not hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from torch import nn

from regard.record.unseen import has_attention, unseen
from regard.words import get_language, set_language


@pytest.fixture(autouse=True)
def english() -> Iterator[None]:
    """The sentences are English, unless a test says otherwise."""
    before = get_language()
    set_language("en")
    yield
    set_language(before)


class OddAttention(nn.Module):
    """By its name an attention."""


class DeltaNet(nn.Module):
    """Not one."""


class Layer(nn.Module):
    def __init__(self, mixer: nn.Module) -> None:
        super().__init__()
        self.mixer = mixer
        self.norm = nn.LayerNorm(2)


class Model(nn.Module):
    def __init__(self, *mixers: nn.Module, **others: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(map(Layer, mixers))
        for name, module in others.items():
            self.add_module(name, module)


def mixers(model: Any, *numbers: int) -> list[nn.Module]:
    return [model.layers[number].mixer for number in numbers]


def test_nothing_is_missing_where_all_was_seen() -> None:
    model = Model(OddAttention(), OddAttention())
    assert unseen(model, mixers(model, 0, 1)).notes() == ()


def test_layers_that_do_not_attend_are_named_with_what_they_have_instead() -> None:
    model = Model(DeltaNet(), DeltaNet(), OddAttention(), DeltaNet())
    found = unseen(model, mixers(model, 2))
    assert found.layers == (("layers.0", "DeltaNet"), ("layers.1", "DeltaNet"), ("layers.3", "DeltaNet"))
    assert found.notes() == ("No softmax attention was seen in some layers: layers.0, 1, 3 (DeltaNet).",)


def test_attentions_outside_of_what_was_seen_are_named() -> None:
    model = Model(OddAttention(), tower=Model(OddAttention(), OddAttention()), head=OddAttention())
    found = unseen(model, mixers(model, 0))
    names = [name for name, _ in found.attentions]
    assert names == ["tower.layers.0.mixer", "tower.layers.1.mixer", "head"]
    set_language("fr")
    assert "tower.layers.0, 1.mixer (OddAttention); head (OddAttention)" in found.notes()[0]


def test_what_lies_within_a_seen_attention_is_seen() -> None:
    outer = OddAttention()
    outer.inner = OddAttention()
    model = Model(outer)
    assert unseen(model, [outer]).notes() == ()
    assert unseen(model, [outer.inner]).notes() == ()


def test_parts_of_a_layer_are_no_layers() -> None:
    model = Model(OddAttention())
    model.layers[0].parts = nn.ModuleList([OddAttention(), DeltaNet()])
    assert unseen(model, [*mixers(model, 0), model.layers[0].parts[0]]).layers == ()


def test_a_long_list_is_cut_and_says_so() -> None:
    towers = {name: OddAttention() for name in "abcdef"}
    model = Model(OddAttention(), **towers)
    assert unseen(model, mixers(model, 0)).notes()[0].endswith("c (OddAttention); d (OddAttention); ….")


class AttentionMask(nn.Module):
    """Serves one, and is none."""


@pytest.mark.parametrize(
    ("module", "expected"),
    [(OddAttention(), True), (Model(DeltaNet()), False), (Model(AttentionMask()), False)],
)
def test_a_model_has_attention_when_a_module_is_called_so(module: nn.Module, expected: bool) -> None:
    assert has_attention(module) is expected
