"""A Llama out of a GGUF file, as the files that every other model has: config.json, safetensors, a tokenizer.

GGUF is what llama.cpp reads: blocks of 32 weights of a few bits, each block with its scale and often its
minimum,

    weight = scale · code + minimum

which is undone once, when the model enters the cache. Three things differ from the original checkpoint and
are put back: names of tensors; rows of the query and key projections, which llama.cpp orders for interleaved
rotary pairs; and the tokenizer, which is stored as bare lists. Format:
https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.errors import MissingExtra, ModelError
from regard.words import say

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Float16

_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_NAME = re.compile(r"(?:blk\.(\d+)\.)?(\w+)\.weight")
_CONTROL = 3  # the kind of a token that structures the input


def convert(path: Path, into: Path) -> None:
    """Write the model in the GGUF file `path` as a folder that `regard.load` reads.

    Raises `ModelError` for anything but a Llama with a byte-level tokenizer. Numbers are kept in 16 bits,
    whose error is a tenth of what 4 or 8 bits have made already. Memory: the model once, in 16 bits.
    """
    require()
    from gguf import GGUFReader
    from safetensors.numpy import save_file

    try:
        reader = GGUFReader(path)
        stated = {name: field.contents() for name, field in reader.fields.items()}
        if stated["general.architecture"] != "llama" or stated["tokenizer.ggml.model"] != "gpt2":
            raise ValueError(f"{stated['general.architecture']}, {stated['tokenizer.ggml.model']}")
        config = _config(stated)
        tensors = {}
        for stored in reader.tensors:
            name, tensor = _tensor(stored, config)
            tensors[name] = tensor
    except (ValueError, KeyError, TypeError, IndexError) as error:
        reason = f"{type(error).__name__} {error}"
        raise ModelError(say("errors.cannot_load", name=path.name, reason=reason)) from error
    config["tie_word_embeddings"] = "lm_head.weight" not in tensors
    save_file(tensors, into / "model.safetensors", metadata={"format": "pt"})
    _write_json(into / "config.json", config)
    _write_tokenizer(stated, into)


def require() -> None:
    """Raise `MissingExtra` unless all that `convert` needs is installed."""
    for package in ("gguf", "tokenizers"):
        if importlib.util.find_spec(package) is None:
            raise MissingExtra(say("errors.missing_extra", package=package, extra="models"))


def _config(stated: dict[str, Any]) -> dict[str, Any]:
    """config.json of a Llama, which computes in float32."""
    tokens = {f"{name}_token_id": stated.get(f"tokenizer.ggml.{name}_token_id") for name in ("bos", "eos")}
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "float32",
        "hidden_act": "silu",
        "hidden_size": stated["llama.embedding_length"],
        "intermediate_size": stated["llama.feed_forward_length"],
        "max_position_embeddings": stated["llama.context_length"],
        "num_attention_heads": stated["llama.attention.head_count"],
        "num_hidden_layers": stated["llama.block_count"],
        "num_key_value_heads": stated["llama.attention.head_count_kv"],
        "rms_norm_eps": round(stated["llama.attention.layer_norm_rms_epsilon"], 12),
        "rope_parameters": {"rope_type": "default", "rope_theta": stated["llama.rope.freq_base"]},
        "vocab_size": len(stated["tokenizer.ggml.tokens"]),
        "pad_token_id": stated.get("tokenizer.ggml.padding_token_id"),
        **tokens,
    }


def _tensor(stored: Any, config: dict[str, Any]) -> tuple[str, Float16[np.ndarray, "rows columns"]]:
    """One tensor, by its name in the original checkpoint."""
    from gguf import dequantize

    found = _NAME.fullmatch(stored.name)
    if found is None or found[2] not in _NAMES:
        raise ValueError(f"tensor {stored.name}")
    values = dequantize(stored.data, stored.tensor_type).astype("float16")
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}.get(found[2])
    if heads is not None:  # of each head: rows (0, d/2), (1, d/2 + 1) … back to 0 … d/2 − 1, d/2 … d − 1
        values = values.reshape(heads, -1, 2, values.shape[1]).swapaxes(1, 2).reshape(values.shape)
    layer = "" if found[1] is None else f"model.layers.{found[1]}."
    return f"{layer}{_NAMES[found[2]]}.weight", values


def _write_tokenizer(stated: dict[str, Any], into: Path) -> None:
    """tokenizer.json and its configuration: byte-level pairs; digits one by one, for a model trained so."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokens = stated["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in stated["tokenizer.ggml.merges"]]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    pieces: Any = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if stated.get("tokenizer.ggml.pre") == "smollm":
        pieces = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pieces])
    tokenizer.pre_tokenizer = pieces
    tokenizer.decoder = decoders.ByteLevel()
    kinds = zip(tokens, stated["tokenizer.ggml.token_type"], strict=True)
    control = [AddedToken(token, special=True, normalized=False) for token, kind in kinds if kind == _CONTROL]
    tokenizer.add_special_tokens(control)
    tokenizer.save(str(into / "tokenizer.json"))
    written: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast"}
    for role, name in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")):
        if (number := stated.get(f"tokenizer.ggml.{name}_token_id")) is not None:
            written[f"{role}_token"] = tokens[number]
    _write_json(into / "tokenizer_config.json", written)
    if template := stated.get("tokenizer.chat_template"):
        (into / "chat_template.jinja").write_text(template, encoding="utf-8")


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
