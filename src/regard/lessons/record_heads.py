"""Record the sentence of the chapter on many heads, and write what its figure shows.

    python -m regard.lessons.record_heads web/src/lib/learn/heads.json

The weights are those of `regard.record`, checked like every recording; they are kept as bytes (weight · 255,
rounded), so each is within 0.002 of the recorded one.
"""

from __future__ import annotations

import base64
import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

import regard

SENTENCE = "The black cat sleeps on the red rug, and the old dog watches the black cat."
ADJECTIVES = ("black", "red", "old")


def record(model: str = "minilm") -> dict[str, Any]:
    """What the figure needs: tokens, weights of all heads, pairs of adjective and noun, and their origin."""
    subject = regard.load(model)
    recording = regard.record(subject, SENTENCE)
    tokens = [text.strip() for text in recording.tokens().texts]
    weights = torch.stack([recording.weights(layer=site.layer) for site in recording.sites])
    layers, heads = weights.shape[:2]
    codes = (weights * 255).round().to(torch.uint8)
    provenance = recording.provenance
    return {
        "provenance": {
            "sentence": SENTENCE,
            "model": "sentence-transformers/all-MiniLM-L6-v2",
            "licence": subject.licence,
            "class": provenance.model_class,
            "date": provenance.created[:10],
            "rows_checked": recording.proof.rows,
            "max_error": recording.proof.max_error,
            "versions": {name: version(name) for name in ("regard", "torch", "transformers")},
        },
        "tokens": tokens,
        "adjective_noun": [[i, i + 1] for i, token in enumerate(tokens) if token in ADJECTIVES],
        "layers": layers,
        "heads": heads,
        "weights": base64.b64encode(codes.numpy().tobytes()).decode("ascii"),
    }


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(record(), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
