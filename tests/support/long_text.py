"""A long text, recorded: a Llama of random weights, so built that its heads look at something."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

import regard

ROOT = Path(__file__).parents[2]


def long_recording(
    tokenizer: Any, tokens: int, *, layers: int = 2, heads: int = 4, channels: int = 32
) -> Any:
    """This project's own prose, of so many tokens, through a causal model with two query heads a key head."""
    from transformers import LlamaConfig, LlamaModel

    text = (ROOT / "DESIGN.md").read_text(encoding="utf-8")
    ids = tokenizer.convert_tokens_to_ids(tokenizer.tokenize(text))
    ids = (ids * (tokens // len(ids) + 1))[:tokens]
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=heads * channels,
        intermediate_size=64,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads // 2,
        max_position_embeddings=tokens,
    )
    model = LlamaModel(config).eval()
    with torch.no_grad():  # at their first weights all heads look everywhere alike
        for layer in model.layers:
            layer.self_attn.q_proj.weight *= 8
            layer.self_attn.k_proj.weight *= 8
    subject = regard.Subject(model, tokenizer, "a small Llama", "random weights")
    return regard.record(subject, {"input_ids": torch.tensor([ids])})
