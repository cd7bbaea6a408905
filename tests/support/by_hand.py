"""Recordings made by hand, queries and keys by a formula: no model is needed to test what is shown."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from regard import masks
from regard.record.recording import Axis, Provenance, Recording
from regard.record.site import Proof, Site
from regard.record.tokens import Tokens

HOSTILE = (
    "</script><img src=x onerror=alert(1)>",
    "<!--",
    "&amp;",
    "\u202eright to left",
    "عربي",
    "😀",
    "\u0000",
    "\u2028",
    "$x^2$",
    "字" * 30,
)


def tokens_of(texts: Sequence[str], second_from: int | None = None) -> Tokens:
    count = len(texts)
    segments = tuple(int(second_from is not None and i >= second_from) for i in range(count))
    special = tuple(text in ("[CLS]", "[SEP]") for text in texts)
    return Tokens(tuple(texts), special, segments, tuple(range(count)), (None,) * count)


def recording_of(
    texts: Sequence[str],
    *,
    layers: int = 2,
    heads: int = 3,
    causal_from: int = 99,
    channels: int = 4,
    sharpness: float = 4.0,
    second_from: int | None = None,
) -> Recording:
    """A recording whose queries and keys are sines of their position, layer and head."""
    count = len(texts)
    place = torch.arange(float(heads * count * channels)).reshape(1, heads, count, channels)
    sites = tuple(
        Site(
            name=f"encoder.layer.{layer}.attention",
            layer=layer,
            kind="causal" if layer >= causal_from else "self",
            query=sharpness * torch.sin(0.7 * place + layer),
            key=torch.sin(1.3 * place - layer),
            scale=0.5,
            mask=masks.causal() if layer >= causal_from else None,
            kernel="sdpa",
            proof=Proof(4, 2e-7),
        )
        for layer in range(layers)
    )
    provenance = Provenance(
        model="by hand",
        model_class="None",
        source="tests",
        licence="Apache-2.0",
        texts=((" ".join(texts),),),
        dtype="float32",
        device="cpu",
        kernels=("sdpa",),
        doors=("interface",),
        created="2026-01-01T00:00:00Z",
        versions={"regard": "0"},
    )
    sequence = Axis((tokens_of(texts, second_from),), (range(count),))
    return Recording(sites, {"text": sequence}, provenance)


def small_recording() -> Recording:
    """Two layers of three heads over seven tokens of a pair; the second layer is causal."""
    texts = ["[CLS]", "le", "chat", "[SEP]", "il", "dort", "[SEP]"]
    return recording_of(texts, causal_from=1, second_from=4)
