"""What recording costs: time beside the model's own forward, and bytes beside those of queries and keys."""

from __future__ import annotations

import os
import tempfile
import time
from functools import partial
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
    """Measure recording of minilm at 128 and 512 tokens.

    What must be reached is measured on one thread in seconds of the processor, which other work on the
    machine does not stretch; the wall's seconds on all threads stand beside them.
    """
    subject = regard.load("minilm")
    rows = []
    all_threads = torch.get_num_threads()
    for tokens, rounds, repeat in ((128, 31, 4), (512, 21, 1)):
        inputs = _inputs(subject, tokens)
        forward = partial(_forward, subject.model, inputs)
        unproven, proven = partial(_record, subject, inputs, 0), partial(_record, subject, inputs, 4)
        options: dict[str, Any] = {"rounds": rounds, "repeat": repeat}
        torch.set_num_threads(1)
        for what, work, target in (("without", unproven, 1.05), ("with", proven, 1.15)):
            ratio = paired(forward, work, clock=time.process_time, **options)
            what = f"recording minilm, {tokens} tokens, {what} proof"
            rows.append(at_most(what, ratio.median, target, detail=ratio.detail))
        torch.set_num_threads(all_threads)
        ratio = paired(forward, proven, **options)
        rows.append(
            noted(f"the same with proof, wall, {all_threads} threads", ratio.median, detail=ratio.detail)
        )
        ratio = paired(forward, partial(_eager, subject.model, inputs), **options)
        rows.append(noted(f"eager with all weights, {tokens} tokens", ratio.median, detail=ratio.detail))
        if tokens == 512:
            rows.append(_bytes(proven()))
    return write("recording", rows)


def _forward(model: Any, inputs: dict[str, torch.Tensor]) -> None:
    with torch.no_grad():
        model(**inputs)


def _record(subject: regard.Subject, inputs: dict[str, torch.Tensor], checked: int) -> regard.Recording:
    with torch.no_grad(), regard.Recorder(subject, rows=checked) as recorder:
        subject.model(**inputs)
    return recorder.recording


def _eager(model: Any, inputs: dict[str, torch.Tensor]) -> None:
    """The usual way to all weights: eager attention for the time of the run."""
    model.set_attn_implementation("eager")
    with torch.no_grad():
        model(**inputs, output_attentions=True)
    model.set_attn_implementation("sdpa")


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
