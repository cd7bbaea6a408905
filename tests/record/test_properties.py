"""Whatever the mask, window, groups, padding, or the way a text is cut: weights are the model's own."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import MistralConfig, MistralForCausalLM

import regard


def tiny(window: int | None, kv_heads: int) -> Any:
    """A Llama with or without a window."""
    torch.manual_seed(0)
    config = MistralConfig(
        vocab_size=40, hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=kv_heads, sliding_window=window, initializer_range=0.3, pad_token_id=0,
    )  # fmt: skip
    return MistralForCausalLM(config).eval()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    window=st.none() | st.integers(2, 12),
    kv_heads=st.sampled_from([1, 2, 4]),
    lengths=st.lists(st.integers(1, 10), min_size=1, max_size=3),
    side=st.sampled_from(["left", "right"]),
    cuts=st.sets(st.integers(1, 9), max_size=4),
    kernel=st.sampled_from(["sdpa", "eager"]),
)
def test_weights_equal_eager(
    window: int | None, kv_heads: int, lengths: list[int], side: str, cuts: set[int], kernel: str
) -> None:
    model, width = tiny(window, kv_heads), max(lengths)
    mask = torch.zeros(len(lengths), width, dtype=torch.long)
    for item, length in enumerate(lengths):
        mask[item, width - length :] = 1
        if side == "right":
            mask[item] = mask[item].flip(0)
    ids = torch.randint(1, 40, mask.shape, generator=torch.Generator().manual_seed(1)) * mask
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        own = model(ids, attention_mask=mask, position_ids=positions, output_attentions=True).attentions
    model.set_attn_implementation(kernel)
    bounds = [0, *sorted(cut for cut in cuts if cut < width), width]
    with regard.Recorder(model) as recorder, torch.no_grad():
        cache = None
        for start, stop in pairwise(bounds):
            part = slice(start, stop)
            cache = model(
                ids[:, part], attention_mask=mask[:, :stop], position_ids=positions[:, part], cache=cache
            ).cache
    recording = recorder.recording
    for item, length in enumerate(lengths):
        kept = slice(width - length, width) if side == "left" else slice(0, length)
        for layer, expected in enumerate(own):
            weights = recording.weights(layer=layer, item=item)
            assert weights.shape == (4, length, length)
            assert (weights - expected[item][:, kept, kept]).abs().max() < 1e-5
            assert (weights.sum(-1) - 1).abs().max() < 1e-5
            assert weights.triu(1).count_nonzero() == 0


def allowed(kind: str, n: int, seed: int) -> Tensor:
    """Who may attend: (n, n), every query at least to itself."""
    position, random = torch.arange(n), torch.Generator().manual_seed(seed)
    causal = position[:, None] >= position
    if kind == "documents":
        ids = torch.randint(0, 2, (n,), generator=random).cumsum(0)
        return causal & (ids[:, None] == ids)
    if kind == "holes":
        return causal & ((torch.rand(n, n, generator=random) < 0.7) | torch.eye(n, dtype=torch.bool))
    if kind == "prefix":
        return causal | (position < 1 + seed % n)
    return causal if kind == "causal" else torch.ones(n, n, dtype=torch.bool)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    kinds=st.lists(
        st.sampled_from(["causal", "documents", "holes", "prefix", "everything"]), min_size=1, max_size=2
    ),
    kv_heads=st.sampled_from([1, 2, 4]),
    n=st.integers(1, 12),
    cuts=st.sets(st.integers(1, 11), max_size=3),
    kernel=st.sampled_from(["sdpa", "eager"]),
    seed=st.integers(0, 99),
)
def test_weights_equal_eager_under_any_mask(
    kinds: list[str], kv_heads: int, n: int, cuts: set[int], kernel: str, seed: int
) -> None:
    model = tiny(None, kv_heads)
    masks = torch.stack([allowed(kind, n, seed + i) for i, kind in enumerate(kinds)])
    added = torch.zeros(len(kinds), 1, n, n).masked_fill(~masks[:, None], torch.finfo(torch.float32).min)
    ids = torch.randint(1, 40, (len(kinds), n), generator=torch.Generator().manual_seed(seed))
    model.set_attn_implementation("eager")
    with torch.no_grad():
        own = model(ids, attention_mask=added, output_attentions=True).attentions
    model.set_attn_implementation(kernel)
    whole = {"prefix", "everything"} & set(kinds)  # no step sees what comes after it
    bounds = [0, *sorted(cut for cut in cuts if cut < n and not whole), n]
    with regard.Recorder(model) as recorder, torch.no_grad():
        cache = None
        for start, stop in pairwise(bounds):
            given = added if kernel == "eager" or seed % 2 else masks[:, None]
            cache = model(
                ids[:, start:stop], attention_mask=given[:, :, start:stop, :stop], cache=cache
            ).cache
    for item, kind in enumerate(kinds):
        for layer, expected in enumerate(own):
            weights = recorder.recording.weights(layer=layer, item=item)
            assert (weights - expected[item]).abs().max() < 1e-5
            assert weights[:, ~masks[item]].count_nonzero() == 0, kind
