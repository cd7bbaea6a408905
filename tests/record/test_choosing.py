"""What is not wanted takes no memory while the model runs, and the rest is as if everything had been kept."""

from __future__ import annotations

import contextlib
import gc
import weakref
from typing import Any

import pytest
import torch
import transformers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import regard
from choices import IDS, MODELS, PIXELS, albert, bert, built, same, t5
from regard.errors import InvalidArgument
from regard.record.choosing import Unclear


@pytest.mark.parametrize("name", MODELS)
def test_one_layer_is_that_of_the_whole_recording(name: str) -> None:
    make, inputs = MODELS[name]
    model = make()
    whole = regard.record(model, inputs)
    for layer in whole.layers:
        part = regard.record(model, inputs, layers=[layer])
        assert [s.name for s in part.sites] == [s.name for s in whole.sites if s.layer == layer]
        assert {s.layer for s in part.sites} == {layer}
        same(part, whole)
        said = [note for note in part.provenance.notes if note not in whole.provenance.notes]
        assert not said  # a layer that is left out is not called unseen


def test_keys_are_patches_also_where_the_attention_among_them_is_left_out() -> None:
    model = built(
        "SiglipVisionConfig", "SiglipVisionModel", hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, image_size=32, patch_size=8,
    )  # fmt: skip
    whole, part = regard.record(model, PIXELS), regard.record(model, PIXELS, kinds=["cross"])
    same(part, whole)
    assert part.sites[0].keys == "image"


@pytest.mark.parametrize("name", ["t5", "bart"])
@pytest.mark.parametrize("kind", ["self", "causal", "cross"])
def test_one_kind_is_that_of_the_whole_recording(name: str, kind: str) -> None:
    make, inputs = MODELS[name]
    model = make()
    whole, part = regard.record(model, inputs), regard.record(model, inputs, kinds=[kind])
    assert [s.name for s in part.sites] == [s.name for s in whole.sites if s.kind == kind]
    same(part, whole)


class Watched(nn.Module):
    """An attention of our own, whose queries and keys nobody else holds."""

    def __init__(self, held: list[tuple[int, weakref.ref[Tensor]]], layer: int) -> None:
        super().__init__()
        self.project = nn.Linear(32, 96)
        self.held, self.layer = held, layer

    def forward(self, x: Tensor) -> Tensor:
        # Each in memory of its own, as after rotary positions.
        q, k, v = (t.unflatten(-1, (4, 8)).transpose(1, 2).clone() for t in self.project(x).chunk(3, -1))
        self.held.extend((self.layer, weakref.ref(t)) for t in (q, k))
        out: Tensor = nn.functional.scaled_dot_product_attention(q, k, v)
        return x + out.transpose(1, 2).flatten(2)


class Stack(nn.Module):
    """Four of them."""

    def __init__(self, layers: int = 4) -> None:
        super().__init__()
        self.held: list[tuple[int, weakref.ref[Tensor]]] = []
        self.layers = nn.ModuleList(Watched(self.held, layer) for layer in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def bytes_in_memory() -> int:
    gc.collect()
    storages = {}
    for t in gc.get_objects():
        if type(t) is Tensor and t.device.type == "cpu":
            with contextlib.suppress(RuntimeError):  # what graphs of other tests hold has no memory
                storages[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
    return sum(storages.values())


def test_what_is_not_wanted_is_free_while_the_block_lasts() -> None:
    torch.manual_seed(0)
    model, x = Stack().eval(), torch.randn(1, 300, 32)
    one_site = 2 * 4 * 300 * 8 * 4
    taken = {}
    for name, choice in {
        "all": {},
        "a layer": {"layers": [2]},
        "a head": {"heads": [1]},
        "a head of a layer": {"layers": [2], "heads": [1]},
        "no kind": {"kinds": ["self"]},
    }.items():
        before = bytes_in_memory()
        with torch.no_grad(), regard.Recorder(model, rows=0, **choice) as recorder:
            model(x)
            taken[name] = (bytes_in_memory() - before) / one_site
        del recorder
    assert taken["all"] == pytest.approx(4, abs=0.1)
    assert taken["no kind"] == pytest.approx(4, abs=0.1)
    assert taken["a layer"] == pytest.approx(1, abs=0.1)
    assert taken["a head"] == pytest.approx(1, abs=0.1)  # a quarter of four
    assert taken["a head of a layer"] == pytest.approx(0.25, abs=0.05)


def test_other_forms_give_up_queries_and_keys_site_by_site() -> None:
    torch.manual_seed(0)
    model, x = Stack().eval(), torch.randn(1, 300, 32)
    before = bytes_in_memory()
    kept = regard.record(model, (x,), keep="top_k", k=4)
    bytes_of = 4 * 300 * 4 * 8
    assert bytes_in_memory() - before < 4 * (bytes_of + 4 * 300 * 8 + 4000)
    assert all(site.query.numel() == 0 for site in kept.sites)


def test_a_recorder_says_that_layers_are_unclear_and_record_runs_twice() -> None:
    model = albert(groups=2)
    said = r"layers of its attentions cannot be told .*Leave out layers="
    with pytest.raises(Unclear, match=said), torch.no_grad(), regard.Recorder(model, layers=[1]):
        model(IDS)
    runs = []
    model.register_forward_hook(lambda *_: runs.append(1))
    assert regard.record(model, {"input_ids": IDS}, layers=[1]).layers == (1,)
    assert len(runs) == 2
    runs.clear()
    regard.record(
        albert(), {"input_ids": IDS}, layers=[1]
    )  # one group: known to be unclear, kept till the end
    model = bert()
    model.register_forward_hook(lambda *_: runs.append(1))
    regard.record(model, {"input_ids": IDS}, layers=[1])
    assert len(runs) == 1


def test_the_proof_is_run_on_all_heads_and_not_where_nothing_is_kept() -> None:
    model, seen = bert(), []
    from regard.record import proof

    original = proof.gather

    def counted(call: Any, *rest: Any) -> Any:
        seen.append(call.query.shape[1])
        return original(call, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(proof, "gather", counted)
        part = regard.record(model, {"input_ids": IDS}, layers=[1, 2], heads=[3])
    assert seen == [4, 4]
    assert part.proof.rows == 8


@pytest.mark.parametrize(
    ("name", "choice"),
    [
        ("llama", {"layers": [1]}),
        ("llama", {"heads": [0, 1, 2]}),
        ("window", {"layers": [0], "heads": [3]}),
        ("t5", {"layers": [1]}),
        ("t5", {"kinds": ["causal"], "heads": [2], "keep": "weights"}),
        ("bart", {"kinds": ["causal"], "keep": "top_k", "k": 64}),
    ],
)
def test_generation_keeps_what_is_chosen(name: str, choice: dict[str, Any]) -> None:
    model = MODELS[name][0]()
    if name == "bart":
        torch.manual_seed(0)
        model = transformers.BartForConditionalGeneration(model.config).eval()
    options = {"max_new_tokens": 5, "do_sample": False, "eos_token_id": None, "num_beams": 2}
    whole = regard.record(model, {"input_ids": IDS}, generate=options)
    part = regard.record(model, {"input_ids": IDS}, generate=options, **choice)
    wanted = [
        s.name
        for s in whole.sites
        if s.layer in choice.get("layers", whole.layers) and s.kind in choice.get("kinds", whole.kinds)
    ]
    assert [s.name for s in part.sites] == wanted
    same(part, whole)
    assert part.tokens().ids == whole.tokens(site=whole.site(part.sites[0].layer, part.sites[0].kind)).ids


def test_cross_attention_alone_of_a_generation() -> None:
    options = {"max_new_tokens": 9, "do_sample": False, "eos_token_id": None}
    whole = regard.record(t5(), {"input_ids": IDS}, generate=options)
    part = regard.record(t5(), {"input_ids": IDS}, generate=options, kinds=["cross"])
    assert part.kinds == ("cross",)
    same(part, whole)


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"heads": [4]}, r"heads must be among 0 … 3; got 4"),
        ({"heads": [-1]}, r"heads must be numbers"),
        ({"heads": "0"}, r"heads must be numbers"),
        ({"heads": []}, r"no attention is of"),
        ({"layers": [True]}, r"layers must be numbers"),
        ({"layers": [9]}, r"layers must be among 0 … 3; got 9"),
        ({"kinds": "self"}, r"kinds must be several"),
        ({"kinds": ["cross"]}, r"kinds must be among self; got 'cross'"),
        ({"k": 3}, r"k goes with keep='top_k'"),
        ({"keep": "top_k", "k": 0}, r"k must be a number of weights, at least 1; got 0"),
    ],
)
def test_what_cannot_be_chosen_is_refused(choice: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        regard.record(bert(), {"input_ids": IDS}, **choice)


WHOLE: dict[str, tuple[Any, regard.Recording]] = {}


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    name=st.sampled_from(["window", "t5"]),
    layers=st.none() | st.sets(st.integers(0, 1), min_size=1),
    heads=st.none() | st.sets(st.integers(0, 3), min_size=1),
    kinds=st.none() | st.sets(st.sampled_from(["self", "causal", "cross"]), min_size=1),
    keep=st.sampled_from(["qk", "weights", "top_k"]),
)
def test_any_choice_is_that_slice_of_the_whole(
    name: str, layers: set[int] | None, heads: set[int] | None, kinds: set[str] | None, keep: Any
) -> None:
    make, inputs = MODELS[name]
    if name not in WHOLE:
        WHOLE[name] = (model := make()), regard.record(model, inputs)
    model, whole = WHOLE[name]
    choice = {"layers": layers, "heads": heads, "kinds": kinds}
    if kinds is not None and not kinds <= set(whole.kinds):
        with pytest.raises(InvalidArgument, match="kinds must be among"):
            regard.record(model, inputs, keep=keep, **choice)
        return
    part = regard.record(model, inputs, keep=keep, **choice)
    wanted = [s for s in whole.sites if layers is None or s.layer in layers]
    wanted = [s for s in wanted if kinds is None or s.kind in kinds]
    assert [(s.name, s.layer, s.kind) for s in part.sites] == [(s.name, s.layer, s.kind) for s in wanted]
    assert {s.head_numbers for s in part.sites} == {tuple(sorted(heads or range(4)))}
    same(part, whole)
