"""Tiny random models of the families in which layers, heads and kinds are hard to tell, and what
choosing must give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers
from torch import Tensor

import regard

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
