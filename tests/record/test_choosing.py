"""What is not wanted takes no memory while the model runs, and the rest is as if everything had been kept."""

from __future__ import annotations

import gc
import re
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import regard
from regard.attend import masks
from regard.attend.attention import attention
from regard.errors import InvalidArgument
from regard.record.choosing import Unclear
from regard.record.heads import Cut

SIZES: dict[str, Any] = {
    "vocab_size": 61, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4,
    "num_attention_heads": 4, "max_position_embeddings": 128, "initializer_range": 0.3, "pad_token_id": 0,
}  # fmt: skip
IDS = torch.arange(4, 16)[None]


def built(config: str, model: str, **changes: Any) -> Any:
    torch.manual_seed(0)
    made = getattr(transformers, config)(**changes)
    return getattr(transformers, model)(made).eval()


def bert() -> Any:
    return built("BertConfig", "BertModel", **SIZES)


def llama(kv_heads: int = 2, heads: int = 4) -> Any:
    sizes = {**SIZES, "num_key_value_heads": kv_heads, "num_attention_heads": heads, "head_dim": 8}
    return built("LlamaConfig", "LlamaForCausalLM", eos_token_id=2, bos_token_id=1, **sizes)


def windowed() -> Any:
    return built("MistralConfig", "MistralForCausalLM", num_key_value_heads=2, sliding_window=4, **SIZES)


def albert(groups: int = 1) -> Any:
    return built("AlbertConfig", "AlbertModel", embedding_size=16, num_hidden_groups=groups, **SIZES)


def t5() -> Any:
    return built(
        "T5Config", "T5ForConditionalGeneration", vocab_size=61, d_model=32, d_kv=8, d_ff=48, num_layers=3,
        num_decoder_layers=2, num_heads=4, pad_token_id=0, decoder_start_token_id=0, initializer_factor=2.0,
    )  # fmt: skip


def bart() -> Any:
    return built(
        "BartConfig", "BartModel", vocab_size=61, d_model=32, encoder_layers=2, decoder_layers=3,
        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=32, decoder_ffn_dim=32,
        init_std=0.3,
    )  # fmt: skip


def zamba() -> Any:
    sizes = {
        **SIZES,
        "num_hidden_layers": 6,
        "mamba_d_state": 4,
        "mamba_dt_rank": 4,
        "use_mamba_kernels": False,
    }
    return built(
        "ZambaConfig", "ZambaModel", attn_layer_period=2, attn_layer_offset=1, num_key_value_heads=4,
        n_mamba_heads=2, **sizes,
    )  # fmt: skip


def qwen_next() -> Any:
    return built(
        "Qwen3NextConfig", "Qwen3NextForCausalLM", num_key_value_heads=2, head_dim=8,
        linear_num_value_heads=2, linear_num_key_heads=2, linear_key_head_dim=8, linear_value_head_dim=8,
        num_experts=2, num_experts_per_tok=1, moe_intermediate_size=16, shared_expert_intermediate_size=16,
        full_attention_interval=2, **SIZES,
    )  # fmt: skip


def swin() -> Any:
    return built(
        "SwinConfig", "SwinModel", image_size=32, patch_size=2, embed_dim=16, depths=[2, 2], num_heads=[2, 4],
        window_size=4, initializer_range=0.3,
    )  # fmt: skip


def gpt_oss() -> Any:
    sizes = {**SIZES, "num_hidden_layers": 2, "num_key_value_heads": 2, "head_dim": 8}
    model = built(
        "GptOssConfig",
        "GptOssForCausalLM",
        num_local_experts=2,
        num_experts_per_tok=1,
        sliding_window=5,
        **sizes,
    )
    for layer in model.model.layers:
        layer.self_attn.sinks.data = torch.tensor([0.5, -0.5, 1.0, 2.0])
    return model


PIXELS = {"pixel_values": torch.randn(1, 3, 32, 32, generator=torch.Generator().manual_seed(0))}
BOTH = {"input_ids": IDS, "decoder_input_ids": torch.tensor([[0, 5, 9, 7]])}
MODELS: dict[str, tuple[Callable[[], Any], dict[str, Tensor]]] = {
    "bert": (bert, {"input_ids": IDS}),
    "llama": (llama, {"input_ids": IDS}),
    "window": (windowed, {"input_ids": IDS}),
    "albert": (albert, {"input_ids": IDS}),
    "albert of two groups": (lambda: albert(2), {"input_ids": IDS}),
    "zamba": (zamba, {"input_ids": IDS}),
    "qwen3-next": (qwen_next, {"input_ids": IDS}),
    "swin": (swin, PIXELS),
    "t5": (t5, BOTH),
    "bart": (bart, BOTH),
}


def same(part: regard.Recording, whole: regard.Recording) -> None:
    """Every site of `part` is that of `whole`, head by head, by the model's numbers."""
    for site in part.sites:
        of = {"layer": site.layer, "kind": site.kind, "site": site.name}
        full = whole.site(site.layer, site.kind, site.name)
        assert (site.queries, site.keys, site.all_heads) == (full.queries, full.keys, full.heads)
        for head in site.head_numbers:
            weights = part.weights(head=head, **of)
            torch.testing.assert_close(weights, whole.weights(head=head, **of), rtol=0, atol=1e-6)


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
    storages = {
        t.untyped_storage().data_ptr(): t.untyped_storage().nbytes()
        for t in gc.get_objects()
        if type(t) is Tensor and t.device.type == "cpu"
    }
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


@pytest.mark.parametrize("heads", [[1], [0, 1], [0, 2], [0, 1, 2], [3], [0, 1, 2, 3]])
@pytest.mark.parametrize("name", ["llama", "window", "bert", "t5"])
def test_heads_keep_their_numbers_and_their_keys(name: str, heads: list[int], tmp_path: Path) -> None:
    make, inputs = MODELS[name]
    model = make()
    whole, part = regard.record(model, inputs), regard.record(model, inputs, heads=heads)
    part.save(tmp_path / "part.regard")
    for recording in (part, regard.open(tmp_path / "part.regard")):
        same(recording, whole)
        for site in recording.sites:
            assert (site.head_numbers, site.heads, site.all_heads) == (tuple(heads), len(heads), 4)
            of = {"layer": site.layer, "kind": site.kind}
            all_kept = recording.weights(**of)
            torch.testing.assert_close(all_kept, whole.weights(**of)[heads], rtol=0, atol=1e-6)
            torch.testing.assert_close(
                recording.overview(size=5, **of), whole.overview(size=5, **of)[heads], rtol=0, atol=1e-6
            )
    for missing in {0, 1, 2, 3} - set(heads):
        with pytest.raises(InvalidArgument, match=rf"kept, {', '.join(map(str, heads))}; got {missing}"):
            part.weights(layer=0, kind=part.kinds[0], head=missing)
    with pytest.raises(InvalidArgument, match=r"head must lie in \[0, 4\); got 4"):
        part.weights(layer=0, kind=part.kinds[0], head=4)


def test_key_heads_are_repeated_only_where_groups_are_uneven() -> None:
    assert Cut((0, 2, 4), 6, 3).key_numbers == (0, 1, 2)
    assert Cut((0, 1, 2), 6, 3).key_numbers == (0, 0, 1)
    assert Cut((0, 1, 2, 3), 6, 3).key_numbers == (0, 1)
    assert Cut((0, 1, 2, 3, 4, 5, 6, 7, 8, 9), 24, 3).key_numbers == (0, 0, 0, 0, 1)
    assert Cut((5,), 6, 3).key_numbers == (2,)


def test_attentions_without_the_wanted_heads_are_left_out() -> None:
    whole, part = regard.record(swin(), PIXELS), regard.record(swin(), PIXELS, heads=[3])
    assert whole.layers == (0, 1, 2, 3)
    assert part.layers == (2, 3)  # the others have two heads, and are counted all the same
    same(part, whole)


def test_rules_and_biases_of_single_heads_are_cut_with_them() -> None:
    class Own(nn.Module):
        def forward(self, q: Tensor, bias: Tensor, rule: Any) -> Any:
            return attention(q, q, q, bias=bias, mask=rule)

    torch.manual_seed(0)
    q, bias = torch.randn(1, 4, 8, 8), torch.randn(1, 4, 8, 8)
    seen = torch.rand(1, 4, 8, 8) > 0.3
    blocks = masks.blocks(layout=torch.rand(4, 4, 4) > 0.3, size=2)
    rule = masks.dense(seen) | ~masks.causal() | blocks
    model = Own()
    whole, part = (regard_of(model, choice, q, bias, rule) for choice in ({}, {"heads": [1, 3]}))
    same(part, whole)
    assert part.sites[0].bias is not None
    assert part.sites[0].bias.shape[1] == 2


def regard_of(model: nn.Module, choice: dict[str, Any], *args: Any) -> regard.Recording:
    with torch.no_grad(), regard.Recorder(model, **choice) as recorder:
        model(*args)
    return recorder.recording


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


def test_weights_of_a_model_with_sinks(tmp_path: Path) -> None:
    model = gpt_oss()
    whole = regard.record(model, {"input_ids": IDS})
    regard.record(model, {"input_ids": IDS}, keep="weights", heads=[1, 2]).save(tmp_path / "w.regard")
    regard.record(model, {"input_ids": IDS}, keep="top_k", k=4).save(tmp_path / "t.regard")
    kept, largest = regard.open(tmp_path / "w.regard"), regard.open(tmp_path / "t.regard")
    same(kept, whole)
    for layer in whole.layers:
        for head in (1, 2):
            sink = whole.sink(layer=layer, head=head)
            assert sink.min() > 0
            for other in (kept, largest):
                torch.testing.assert_close(other.sink(layer=layer, head=head), sink, rtol=0, atol=1e-6)
    small = regard.record(model, {"input_ids": IDS}, keep="weights", dtype=torch.float16)
    assert (small.weights(layer=1) - whole.weights(layer=1)).abs().max() < 5e-3


def test_the_largest_weights_are_kept_exactly_and_the_rest_is_unknown(tmp_path: Path) -> None:
    model = bert()
    whole = regard.record(model, {"input_ids": IDS})
    regard.record(model, {"input_ids": IDS}, keep="top_k", k=5).save(tmp_path / "t.regard")
    kept = regard.open(tmp_path / "t.regard")
    worst = 0.0
    for layer in whole.layers:
        full, part = whole.weights(layer=layer), kept.weights(layer=layer)
        best = full.topk(5, -1)
        expected = torch.zeros_like(full).scatter_(-1, best.indices, best.values)
        torch.testing.assert_close(part, expected, rtol=0, atol=1e-6)
        worst = max(worst, float((1 - best.values.sum(-1)).max()))
        found, top = kept.top_k(layer=layer, row=3, k=5), whole.top_k(layer=layer, row=3, k=5)
        assert torch.equal(found.positions, top.positions)
        torch.testing.assert_close(found.weights, top.weights, rtol=0, atol=1e-6)
        torch.testing.assert_close(
            kept.weights(layer=layer, head=2, rows=[5, 1], cols=slice(2, 9)), expected[2, [5, 1], 2:9]
        )
        torch.testing.assert_close(
            kept.overview(layer=layer, size=4),
            expected.reshape(4, 4, 3, 4, 3).amax((2, 4)),
            rtol=1e-5,
            atol=0,
        )
    (note,) = (note for note in kept.provenance.notes if "largest weights" in note)
    said = re.search(r"only the 5 largest .* at most (\S+) of a row", note)
    assert said is not None
    assert float(said[1]) == pytest.approx(worst, rel=0.01)
    with pytest.raises(InvalidArgument, match=r"k must be at most 5, .*got 6\. Record with a larger k"):
        kept.top_k(layer=0, row=3, k=6)
    site = kept.sites[0]
    assert site.largest is not None
    assert site.largest.positions.dtype == torch.int32
    assert site.query.numel() + site.key.numel() == 0


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"heads": [4]}, r"heads must be of 0 … 3; got 4"),
        ({"heads": [-1]}, r"heads must be numbers"),
        ({"heads": "0"}, r"heads must be numbers"),
        ({"heads": []}, r"no attention is of"),
        ({"layers": [True]}, r"layers must be numbers"),
        ({"layers": [9]}, r"layers must be of 0 … 3; got 9"),
        ({"kinds": "self"}, r"kinds must be several"),
        ({"kinds": ["cross"]}, r"kinds must be of self; got 'cross'"),
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
        with pytest.raises(InvalidArgument, match="kinds must be of"):
            regard.record(model, inputs, keep=keep, **choice)
        return
    part = regard.record(model, inputs, keep=keep, **choice)
    wanted = [s for s in whole.sites if layers is None or s.layer in layers]
    wanted = [s for s in wanted if kinds is None or s.kind in kinds]
    assert [(s.name, s.layer, s.kind) for s in part.sites] == [(s.name, s.layer, s.kind) for s in wanted]
    assert {s.head_numbers for s in part.sites} == {tuple(sorted(heads or range(4)))}
    same(part, whole)
