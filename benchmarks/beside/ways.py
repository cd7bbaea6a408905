"""How each package gives every weight of a run of smollm2: what is called, and where the weights then are.

A way is made from the folder of the model and the plain model; the packages are imported only when asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Way:
    """One way to the weights."""

    run: Callable[[Tensor], Any]  # ids (1, n) → whatever it keeps
    weights: Callable[[Any, int], Tensor]  # what it kept, a layer → (h, n, n)
    runs: int = 1  # like this one, that all layers take


def plain(model: Any, ids: Tensor) -> None:
    """The forward pass that everything is compared with."""
    with torch.no_grad():
        model(ids, logits_to_keep=1)


def eager(_: str, model: Any) -> Way:
    """transformers itself: another attention for the time of the run, which returns its weights."""

    def run(ids: Tensor) -> Any:
        model.set_attn_implementation("eager")
        with torch.no_grad():
            attentions = model(ids, logits_to_keep=1, output_attentions=True).attentions
        model.set_attn_implementation("sdpa")
        return attentions

    return Way(run, lambda attentions, layer: attentions[layer][0])


def transformer_lens(folder: str, _: Any) -> Way:
    """Its bridge around the same model, which caches the patterns only."""
    bridge = import_module("transformer_lens.model_bridge").TransformerBridge.boot_transformers(
        folder, device="cpu", dtype=torch.float32
    )

    def run(ids: Tensor) -> Any:
        with torch.no_grad():
            return bridge.run_with_cache(
                ids, names_filter=lambda name: name.endswith("hook_pattern"), logits_to_keep=1
            )[1]

    return Way(run, lambda cache, layer: cache[f"blocks.{layer}.attn.hook_pattern"][0])


def nnterp(folder: str, _: Any) -> Way:
    """Its standardized model, traced; the list lives in the trace, so it is filled there."""
    model = import_module("nnterp").StandardizedTransformer(
        folder, enable_attention_probs=True, device_map="cpu", dtype=torch.float32
    )

    def run(ids: Tensor) -> Any:
        with torch.no_grad():  # noqa: SIM117 (a trace must be a block by itself)
            with model.trace(ids, logits_to_keep=1):
                probabilities = list().save()  # type: ignore[attr-defined]  # noqa: C408
                for layer in range(model.num_layers):
                    probabilities.append(model.attention_probabilities[layer])
        return probabilities

    return Way(run, lambda probabilities, layer: probabilities[layer][0])


def attnread(_: str, model: Any) -> Way:
    """Unit vectors in place of the values, one pass for each 64 keys and each layer: so one layer only."""
    extract = import_module("attnread").extract_attention
    heads = range(model.config.num_attention_heads)

    def run(ids: Tensor) -> Any:
        return extract(model, {"input_ids": ids}, heads=[(0, head) for head in heads])

    def weights(patterns: Any, layer: int) -> Tensor:
        return torch.stack([patterns["text", layer, head][0] for head in heads])

    return Way(run, weights, runs=model.config.num_hidden_layers)


def regard(_: str, model: Any) -> Way:
    """Recorded and proven: every weight follows from what is kept, when it is asked for."""
    recorder = import_module("regard").Recorder

    def run(ids: Tensor) -> Any:
        with torch.no_grad(), recorder(model) as recording:
            model(ids, logits_to_keep=1)
        return recording.recording

    return Way(run, lambda recording, layer: recording.weights(layer=layer))


def regard_all(folder: str, model: Any) -> Way:
    """Recorded, and then every weight asked for and held, as the others hold them."""
    record = regard(folder, model).run

    def run(ids: Tensor) -> Any:
        recording = record(ids)
        return [recording.weights(layer=layer) for layer in range(model.config.num_hidden_layers)]

    return Way(run, lambda weights, layer: weights[layer])


WAYS: dict[str, Callable[[str, Any], Way]] = {
    way.__name__: way for way in (eager, transformer_lens, nnterp, attnread, regard, regard_all)
}
