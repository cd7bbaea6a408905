"""One walk through a model tells what torch and the notes on what is unseen tell."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from regard.record.structure import Structure
from regard.record.unseen import has_attention, unseen


class OddAttention(nn.Module):
    """By its name an attention."""


class Holder(nn.Module):
    """Not one."""


def build(plan: list[tuple[int, int]]) -> list[nn.Module]:
    """Modules, each put into an earlier one; the first holds all."""
    modules: list[nn.Module] = [Holder()]
    for kind, where in plan:
        module = (OddAttention, Holder, nn.ModuleList, nn.Identity)[kind]()
        modules[where % len(modules)].add_module(str(len(modules)), module)
        modules.append(module)
    return modules


plans = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 20)), max_size=16)


@given(plans)
def test_names_are_those_of_torch(plan: list[tuple[int, int]]) -> None:
    model = build(plan)[0]
    structure = Structure.of(model)
    assert [(structure.names[id(m)], m) for m in structure.modules] == list(model.named_modules())
    assert bool(structure.attentions) == has_attention(model)
    assert not structure.shares
    assert not structure.compiled


@given(plans, st.sets(st.integers(0, 16)))
def test_what_names_call_seen_leaves_nothing_unseen(plan: list[tuple[int, int]], chosen: set[int]) -> None:
    modules = build(plan)
    structure = Structure.of(modules[0])
    seen = [modules[i] for i in sorted(chosen) if i < len(modules)]
    found = unseen(modules[0], seen)
    if structure.is_seen([structure.names[id(module)] for module in seen]):
        assert found.notes() == ()


def test_a_model_of_which_all_was_seen_is_seen_by_names_alone() -> None:
    model = nn.ModuleDict({"layers": nn.ModuleList(nn.ModuleList([OddAttention()]) for _ in range(3))})
    structure = Structure.of(model)
    assert structure.is_seen([f"layers.{layer}.0" for layer in range(3)])
    assert not structure.is_seen(["layers.0.0", "layers.2.0"])


def test_a_module_in_two_places_is_noticed() -> None:
    shared = OddAttention()
    structure = Structure.of(nn.ModuleList([shared, shared]))
    assert structure.shares
    assert not structure.is_seen(["0"])


def test_a_compiled_part_is_noticed() -> None:
    part = nn.Linear(2, 2)
    model = nn.Sequential(nn.Linear(2, 2), part)
    part.compile(backend="eager")
    assert Structure.of(model).compiled


def test_a_class_is_known_with_those_that_inherit_from_it() -> None:
    class Own(nn.MultiheadAttention):
        pass

    structure = Structure.of(nn.Sequential(Own(2, 1)))
    assert structure.has(nn.MultiheadAttention, nn.TransformerEncoder)
    assert not structure.has(nn.TransformerEncoder)
