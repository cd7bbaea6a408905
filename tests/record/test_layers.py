"""Sites are numbered as the model's own modules are, or by the order of calls where those do not suffice."""

from __future__ import annotations

from torch import nn

from regard.record.layers import kind_of, numbers_of


def numbers(*calls: tuple[str, str]) -> list[int]:
    return numbers_of([name for name, _ in calls], [kind for _, kind in calls])


def test_the_number_in_the_name_is_the_layer_also_when_others_are_missing() -> None:
    assert numbers(("model.layers.3.attn", "causal"), ("model.layers.7.attn", "causal")) == [3, 7]


def test_self_and_cross_attention_of_a_layer_share_its_number() -> None:
    calls = [
        ("encoder.block.0.layer.0.SelfAttention", "self"),
        ("decoder.block.0.layer.0.SelfAttention", "causal"),
        ("decoder.block.0.layer.1.EncDecAttention", "cross"),
        ("decoder.block.1.layer.0.SelfAttention", "causal"),
        ("decoder.block.1.layer.1.EncDecAttention", "cross"),
    ]
    assert numbers(*calls) == [0, 0, 0, 1, 1]


def test_one_module_called_for_every_layer_counts_its_calls() -> None:
    assert numbers(*[("encoder.groups.0.layers.0.attention", "self")] * 4) == [0, 1, 2, 3]


def test_stages_of_blocks_are_counted_through() -> None:
    calls = [(f"layers.{stage}.blocks.{block}.attention", "self") for stage in range(2) for block in range(2)]
    assert numbers(*calls) == [0, 1, 2, 3]


def test_a_name_without_a_number_is_layer_zero() -> None:
    assert numbers(("attention", "self")) == [0]


def test_kinds_are_taken_from_what_the_module_says() -> None:
    module = nn.Identity()
    assert kind_of(module, "encoder.layer.0.attention.self", causal=False) == "self"
    assert kind_of(module, "layers.0.attn", causal=True) == "causal"
    assert kind_of(module, "decoder.layers.0.encoder_attn", causal=False) == "cross"
    assert kind_of(module, "decoder.block.0.layer.1.EncDecAttention", causal=False) == "cross"
    module.is_cross_attention = False  # type: ignore[assignment]
    assert kind_of(module, "crossroads.0.attn", causal=False) == "self"
