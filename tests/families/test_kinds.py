"""Each kind of attention that goes wrong elsewhere, on a tiny model that has it, and what is right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import families
import regard
from regard.show import payload

NAMED = {family.name: family for family in families.families()}


def record(name: str, **changes: Any) -> tuple[Any, Any, dict[str, Tensor]]:
    """(recording, model, inputs) of a family, its configuration changed."""
    model, inputs = built(name, **changes)
    with families.quiet():
        return regard.record(model, inputs), model, inputs


def built(name: str, **changes: Any) -> tuple[Any, dict[str, Tensor]]:
    family = NAMED[name]
    changed = families.Family(**{**vars(family), "config": {**family.config, **changes}})
    with families.quiet():
        model = families.build(changed)
    return model, families.inputs_of(changed, model)


def test_t5_has_all_attentions_of_its_unequal_stacks_each_with_its_own_numbers() -> None:
    recording, _, _ = record("t5")
    numbers = {
        kind: [site.layer for site in recording.sites if site.kind == kind] for kind in recording.kinds
    }
    assert numbers == {"self": [0, 1], "causal": [0, 1, 2], "cross": [0, 1, 2]}
    assert recording.site(2, "cross").name == "decoder.block.2.layer.1.EncDecAttention"


def test_the_bias_of_t5_is_in_its_weights() -> None:
    recording, model, inputs = record("t5")
    bias = recording.site(0, "self").bias
    assert bias is not None
    assert float(bias.std()) > 0.1
    for block in (*model.encoder.block, *model.decoder.block):
        if block.layer[0].SelfAttention.has_relative_attention_bias:
            torch.nn.init.zeros_(block.layer[0].SelfAttention.relative_attention_bias.weight)
    without = regard.record(model, inputs)
    first = {"layer": 0, "kind": "self"}
    assert float((recording.weights(**first) - without.weights(**first)).abs().max()) > 0.05


def test_a_decoder_reads_its_own_tokens_and_its_encoders() -> None:
    model, inputs = built("bart")
    inputs["decoder_input_ids"] = inputs["input_ids"].flip(1)  # as long as the encoder's, and without padding
    recording = regard.record(model, inputs)
    own, crossing, encoding = (recording.site(0, kind) for kind in ("causal", "cross", "self"))
    assert (own.queries, own.keys) == ("target", "target")
    assert (crossing.queries, crossing.keys) == ("target", "text")
    assert (encoding.queries, encoding.keys) == ("text", "text")
    assert recording.tokens(site=own).ids == tuple(inputs["decoder_input_ids"][0].tolist())
    assert recording.shape(0, "cross", item=1) == (4, 9, 7)


def test_tokens_that_a_decoder_is_not_given_are_not_invented() -> None:
    model, inputs = built("bart")
    del inputs["decoder_input_ids"]  # then the model shifts the encoder's
    recording = regard.record(model, inputs)
    assert recording.site(0, "causal").queries == "positions-9"
    assert recording.site(0, "cross").keys == "text"


def test_an_axis_is_not_the_text_for_being_as_long() -> None:
    model, inputs = built("clip")
    inputs["input_ids"] = inputs["input_ids"].repeat(1, 2)[:, :17]  # 16 patches and a class token
    inputs["attention_mask"] = torch.ones(2, 17, dtype=torch.long)
    inputs["attention_mask"][1, 9:] = 0
    recording = regard.record(model, inputs)
    towers = {site.name.split(".")[0]: site for site in recording.sites}
    assert towers["text_model"].queries == "text"
    assert towers["vision_model"].queries == "image"
    assert recording.shape(site=towers["vision_model"].name, item=1) == (4, 17, 17)
    assert recording.shape(site=towers["text_model"].name, item=1) == (4, 9, 9)


@pytest.mark.parametrize("name", ["llama", "qwen3", "mistral", "gemma3_text", "gpt_oss", "llama4_text"])
def test_left_padding_changes_nothing_of_an_items_weights(name: str) -> None:
    recording, model, inputs = record(name)
    alone = regard.record(model, {"input_ids": inputs["input_ids"][1:, 2:]})
    for layer in recording.layers:
        weights = recording.weights(layer=layer, item=1)
        assert weights.shape == (4, 7, 7)
        torch.testing.assert_close(weights, alone.weights(layer=layer), atol=1e-5, rtol=0)
        assert weights.triu(1).count_nonzero() == 0


def test_weights_and_learned_sink_sum_to_one() -> None:
    recording, _, _ = record("gpt_oss")
    for layer in recording.layers:
        weights, sink = recording.weights(layer=layer), recording.sink(layer=layer)
        assert float(sink.max()) > 0.1
        torch.testing.assert_close(weights.sum(-1) + sink, torch.ones_like(sink), atol=1e-5, rtol=0)
        assert torch.equal(recording.sink(layer=layer, head=2, rows=slice(3, 5)), sink[2, 3:5])


def test_sinks_that_each_token_has_of_its_own_are_kept_by_token(tmp_path: Path) -> None:
    recording, model, inputs = record("inkling2_text")
    eager = families.build(NAMED["inkling2_text"], "eager")
    with torch.no_grad():
        true = eager(**inputs, output_attentions=True).attentions
    site = recording.site(1, "causal")
    assert site.sinks is not None
    assert tuple(site.sinks.shape) == (2, site.heads, 9)
    for item, kept in ((0, slice(0, 9)), (1, slice(2, 9))):
        weights, sink = (
            recording.weights(layer=1, kind="causal", item=item),
            recording.sink(layer=1, kind="causal", item=item),
        )
        torch.testing.assert_close(weights, true[1][item][:, kept, kept], atol=1e-5, rtol=0)
        torch.testing.assert_close(weights.sum(-1) + sink, torch.ones_like(sink), atol=1e-5, rtol=0)
        assert torch.equal(
            recording.sink(layer=1, kind="causal", item=item, head=2, rows=slice(3, 5)), sink[2, 3:5]
        )
        shown = payload._weights(recording, site, item)
        torch.testing.assert_close(shown[..., -1], sink)
    recording.save(tmp_path / "sinks.regard")
    again = regard.open(tmp_path / "sinks.regard")
    assert torch.equal(
        again.sink(layer=1, kind="causal", item=1), recording.sink(layer=1, kind="causal", item=1)
    )
    where = {"layer": 1, "kind": "causal", "item": 1}
    for choice in ({"heads": [1, 3]}, {"keep": "weights"}, {"keep": "top_k", "k": 20}):
        with families.quiet():
            other = regard.record(model, inputs, **choice)
        heads = choice.get("heads", slice(None))
        for of in ("weights", "sink"):
            kept, whole = getattr(other, of)(**where), getattr(recording, of)(**where)[heads]
            torch.testing.assert_close(kept, whole, atol=1e-5, rtol=0)


def test_a_model_without_sinks_gives_them_nothing() -> None:
    recording, _, _ = record("llama")
    assert recording.sink(layer=0).count_nonzero() == 0


def test_softcap_is_in_the_weights() -> None:
    capped, _, _ = record("gemma2", attn_logit_softcapping=0.5)
    site = capped.site(0)
    assert site.softcap == 0.5
    logits = site.scores(0).tile(slice(8, 9), slice(0, 9))
    assert float(logits[logits.isfinite()].abs().max()) <= 0.5


@pytest.mark.parametrize("name", ["qwen3_next", "gemma3n_text", "bitnet", "afmoe", "diffllama"])
def test_rows_sum_to_one_whatever_the_model_does_with_the_output(name: str) -> None:
    recording, _, _ = record(name)
    for site in recording.sites:
        total = recording.weights(site=site.name, item=1).sum(-1)
        torch.testing.assert_close(total, torch.ones_like(total), atol=1e-5, rtol=0)


def test_a_hybrid_keeps_the_numbers_of_its_layers_and_names_those_that_do_not_attend() -> None:
    recording, _, _ = record("qwen3_next")
    assert recording.layers == (3,)
    assert recording.provenance.notes == (
        "No softmax attention was seen in some layers: layers.0, 1, 2 (Qwen3NextGatedDeltaNet).",
    )


def test_a_shared_block_has_the_number_of_each_place_where_it_stands() -> None:
    model, inputs = built("zamba")
    model.layers[3].shared_transf = model.layers[1].shared_transf
    recording = regard.record(model, inputs)
    assert [(site.layer, site.name) for site in recording.sites] == [
        (1, "layers.1.shared_transf.self_attn"),
        (3, "layers.3.shared_transf.self_attn"),
    ]


def test_images_packed_into_one_sequence_are_one_site_in_which_they_do_not_see_each_other() -> None:
    recording, _, _ = record("qwen2_vl")
    sites = [site for site in recording.sites if site.name.startswith("visual")]
    assert [site.layer for site in sites] == [0, 1]
    weights = recording.weights(site=sites[0].name)
    assert weights.shape == (4, 32, 32)
    assert weights[:, :16, 16:].count_nonzero() == 0
    assert float(weights[:, 16:, 16:].min()) > 0


def test_a_latent_attention_has_values_of_another_size_than_its_keys() -> None:
    recording, _, _ = record("deepseek_v3")
    assert recording.site(0).key.shape[-1] == 16
    assert recording.proof.max_error < 1e-5


def test_head_sizes_may_differ_from_layer_to_layer() -> None:
    recording, _, _ = record("gemma4_text")
    assert [site.query.shape[-1] for site in recording.sites] == [8, 16]


def test_texts_packed_by_their_positions_do_not_see_each_other() -> None:
    model, inputs = built("llama", use_cache=False)
    packed = inputs["input_ids"][:1]
    positions = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3, 4]])
    recording = regard.record(model, {"input_ids": packed, "position_ids": positions})
    alone = regard.record(model, {"input_ids": packed[:, 4:]})
    weights = recording.weights(layer=1)
    assert weights[:, 4:, :4].count_nonzero() == 0
    torch.testing.assert_close(weights[:, 4:, 4:], alone.weights(layer=1), atol=1e-5, rtol=0)
    assert "documents" in repr(recording.site(1).mask)


def test_chunks_and_windows_are_kept_as_rules() -> None:
    chunked, windowed = record("llama4_text")[0], record("mistral")[0]
    assert "documents" in repr(chunked.site(0).mask)
    assert "window(left=3" in repr(windowed.site(0).mask)
    assert chunked.weights(layer=0)[:, 4:, :4].count_nonzero() == 0
    assert windowed.weights(layer=0)[:, 8, :5].count_nonzero() == 0


def test_a_prefix_that_all_see_is_kept_as_a_rule() -> None:
    model, inputs = built("paligemma")
    inputs["attention_mask"][:] = 1
    kinds = torch.zeros_like(inputs["input_ids"])
    kinds[:, 19:] = 1  # what the model is to write
    with families.quiet():
        recording = regard.record(model, {**inputs, "token_type_ids": kinds})
    site = next(site for site in recording.sites if site.name.startswith("language_model"))
    weights = recording.weights(site=site.name)
    assert "prefix" in repr(site.mask)
    assert float(weights[:, :19, :19].min()) > 0
    assert weights[:, :, 19:].triu(-18).count_nonzero() == 0  # no query sees what comes after it there
    assert float(weights[:, 21].min()) > 0


def test_what_ran_is_recorded_where_kernels_differ() -> None:
    """Mllama's cross-attention does not say whether it is causal; PyTorch's kernel then takes it to be."""
    model, inputs = built("mllama")
    del inputs["cross_attention_mask"]
    weights = regard.record(model, inputs).weights(layer=1, kind="cross")
    assert weights.triu(1).count_nonzero() == 0
    eager = families.build(NAMED["mllama"], "eager")
    assert float(regard.record(eager, inputs).weights(layer=1, kind="cross").min()) > 0


@settings(max_examples=25, deadline=None)
@given(
    n=st.integers(1, 12),
    key_heads=st.sampled_from([1, 2, 4]),
    window=st.one_of(st.none(), st.integers(1, 6)),
    padding=st.integers(0, 5),
    side=st.sampled_from(["left", "right"]),
    implementation=st.sampled_from(["sdpa", "eager"]),
)
def test_any_window_grouping_and_padding_equals_eager(
    n: int, key_heads: int, window: int | None, padding: int, side: str, implementation: str
) -> None:
    family = families.Family(
        "mistral",
        "decoders",
        "mistral",
        {"num_key_value_heads": key_heads, "sliding_window": window},
        {"input_ids": [2, n]},
    )
    model, eager = families.build(family, implementation), families.build(family, "eager")
    mask = torch.ones(2, n, dtype=torch.long)
    hidden = min(padding, n - 1)
    mask[1, slice(0, hidden) if side == "left" else slice(n - hidden, n)] = 0
    inputs = {**families.inputs_of(family, model), "attention_mask": mask}
    recording = regard.record(model, inputs)
    with torch.no_grad():
        true = eager(**inputs, output_attentions=True).attentions
    kept = mask[1].bool()
    for layer in recording.layers:
        torch.testing.assert_close(recording.weights(layer=layer), true[layer][0], atol=1e-5, rtol=0)
        own = true[layer][1][:, kept][:, :, kept]
        torch.testing.assert_close(recording.weights(layer=layer, item=1), own, atol=1e-5, rtol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["bert", "llama", "t5", "gpt_oss"])
def test_models_in_half_precision_are_recorded_and_proven(name: str, dtype: torch.dtype) -> None:
    model, inputs = built(name)
    recording = regard.record(model.to(dtype), inputs)
    assert recording.provenance.dtype == str(dtype).removeprefix("torch.")
    assert all(site.proof.rows for site in recording.sites)
    for site in recording.sites:
        weights = recording.weights(site=site.name)
        assert weights.dtype == torch.float32
        total = weights.sum(-1) + recording.sink(site=site.name)
        torch.testing.assert_close(total, torch.ones_like(total), atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", ["llama", "t5", "vit", "gpt_oss", "qwen3_next"])
def test_the_output_of_the_model_is_the_same_to_the_last_bit(name: str) -> None:
    model, inputs = built(name)
    with torch.no_grad():
        before = model(**inputs).last_hidden_state
        with regard.Recorder(model):
            during = model(**inputs).last_hidden_state
    assert torch.equal(before, during)


def test_a_bert_with_cross_attention_tells_its_kinds_apart() -> None:
    model, inputs = built("bert", is_decoder=True, add_cross_attention=True)
    recording = regard.record(model, {**inputs, "encoder_hidden_states": torch.randn(2, 5, 32)})
    assert [(site.kind, site.layer) for site in recording.sites] == [
        ("causal", 0),
        ("cross", 0),
        ("causal", 1),
        ("cross", 1),
    ]
    assert recording.shape(1, "cross", item=1) == (4, 7, 5)
    assert recording.site(1, "cross").keys == "positions-5"


def test_a_model_without_attention_is_refused_as_such() -> None:
    model, inputs = built("mamba")
    with pytest.raises(regard.errors.NothingToRecord, match="MambaModel has no attention to record"):
        regard.record(model, inputs)


def test_every_family_is_known_to_the_installed_transformers() -> None:
    for family in NAMED.values():
        assert family.model_class.startswith("Auto") or hasattr(transformers, family.model_class)
