"""What recording costs: time beside the model's own forward, and bytes beside those of queries and keys."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import torch

import regard
from benchmarks.report import at_most, noted, paired, write
from regard.record.encode import encode

PROSE = (
    "When the museum opened its doors that morning, nobody had expected the queue to reach the bridge. "
    "A guard counted the visitors, lost his place, and began again. Children leaned over the parapet to "
    "watch the boats; their parents read the programme, folded it, and read it once more. "
)


def main() -> dict[str, Any]:
    """Measure recording of minilm at 128 and 512 tokens."""
    torch.set_num_threads(2)
    subject = regard.load("minilm")
    model = subject.model
    rows = []
    for tokens, rounds, repeat in ((128, 41, 6), (512, 25, 2)):
        inputs = _inputs(subject, tokens)

        def forward(inputs: dict[str, torch.Tensor] = inputs) -> None:
            with torch.no_grad():
                model(**inputs)

        def recording(checked: int, inputs: dict[str, torch.Tensor] = inputs) -> regard.Recording:
            with torch.no_grad(), regard.Recorder(subject, rows=checked) as recorder:
                model(**inputs)
            return recorder.recording

        without = paired(forward, lambda: recording(0), rounds=rounds, repeat=repeat)
        with_proof = paired(forward, lambda: recording(4), rounds=rounds, repeat=repeat)
        rows.append(
            at_most(
                f"recording minilm, {tokens} tokens, without proof",
                without.median,
                1.05,
                detail=without.detail,
            )
        )
        rows.append(
            at_most(
                f"recording minilm, {tokens} tokens, with proof",
                with_proof.median,
                1.15,
                detail=with_proof.detail,
            )
        )
        model.set_attn_implementation("eager")

        def eager(inputs: dict[str, torch.Tensor] = inputs) -> None:
            with torch.no_grad():
                model(**inputs, output_attentions=True)

        def plain(inputs: dict[str, torch.Tensor] = inputs) -> None:
            model.set_attn_implementation("sdpa")
            with torch.no_grad():
                model(**inputs)
            model.set_attn_implementation("eager")

        ratio = paired(plain, eager, rounds=rounds // 2, repeat=repeat)
        model.set_attn_implementation("sdpa")
        rows.append(
            noted(
                f"for comparison: eager with all weights, {tokens} tokens", ratio.median, detail=ratio.detail
            )
        )
        if tokens == 512:
            rows.append(_bytes(recording(4)))
    return write("recording", rows)


def _inputs(subject: regard.Subject, tokens: int) -> dict[str, torch.Tensor]:
    """Real prose, cut to so many tokens."""
    text = PROSE * (tokens // 40)
    encoded = encode(subject.model, subject.tokenizer, text, None, truncate=True, padding="right").inputs
    end = encoded["input_ids"][:, -1:]
    return {
        name: torch.cat([tensor[:, : tokens - 1], end if name == "input_ids" else tensor[:, -1:]], 1)
        for name, tensor in encoded.items()
    }


def _bytes(recording: regard.Recording) -> Any:
    """The file of a recording, with every log-sum-exp in it, against the bytes of its queries and keys."""
    kept = sum(t.numel() * t.element_size() for site in recording.sites for t in (site.query, site.key))
    for site in recording.sites:
        assert site.lse is not None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "recording.regard"
        recording.save(path)
        size = os.path.getsize(path)
    return at_most(
        "bytes of a recording (q, k, lse, masks, tokens), 512 tokens",
        size / kept,
        1.1,
        detail=f"{size / 1e6:.2f} MB",
    )


if __name__ == "__main__":
    main()
