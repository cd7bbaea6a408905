"""What recording a Llama costs at length: time beside its plain forward, memory beside the bytes kept."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from functools import partial
from typing import Any

import torch

import regard
from benchmarks.report import at_most, noted, paired, write

MIB = 1 << 20


def main() -> dict[str, Any]:
    """Measure smollm2 at 512, 2048, 8192 and 16,384 tokens; each peak of memory in a process of its own.

    Times are seconds of the processor on one thread, which other work on the machine does not stretch.
    """
    subject = regard.load("smollm2")
    torch.set_num_threads(1)
    rows = []
    for tokens, rounds in ((512, 7), (2048, 5), (8192, 1)):
        ids = text_of(tokens)
        forward = partial(_forward, subject.model, ids)
        for what, checked, target in (("without", 0, 1.05), ("with", 4, 1.10)):
            record = partial(_record, subject, ids, checked)
            ratio = paired(forward, record, rounds=rounds, repeat=1, clock=time.process_time)
            what = f"recording smollm2, {tokens} tokens, {what} proof"
            rows.append(at_most(what, ratio.median, target, detail=ratio.detail))
    ids = text_of(2048)
    plain, watched = (partial(work, subject, ids) for work in (_generate, _generate_watched))
    ratio = paired(plain, watched, rounds=3, repeat=1, clock=time.process_time)
    rows.append(at_most("generating 64 tokens after 2048", ratio.median, 1.15, detail=ratio.detail))
    without, _ = _apart("forward", 8192)
    with_recording, kept = _apart("record", 8192)
    extra = (with_recording - without) / kept
    detail = f"{(with_recording - without) / MIB:.0f} MiB more for {kept / MIB:.0f} MiB of queries and keys"
    rows.append(at_most("extra peak memory at 8192 tokens, beside what is kept", extra, 1.2, detail=detail))
    peak, kept = _apart("record", 16384)
    detail = f"{kept / MIB:.0f} MiB kept; all weights would be {30 * 9 * 16384**2 * 4 / 1e9:.0f} GB"
    rows.append(at_most("peak memory of a process, 16,384 tokens", peak / 1e9, 24, "GB", detail))
    rows.append(noted("bytes kept per token", kept / 16384 / 1024, "KiB"))
    return write("long_recording", rows)


def text_of(tokens: int) -> torch.Tensor:
    """Token ids of so many tokens, none of them special."""
    return torch.randint(20, 49_000, (1, tokens), generator=torch.Generator().manual_seed(0))


def _forward(model: Any, ids: torch.Tensor) -> None:
    with torch.no_grad():
        model(ids, logits_to_keep=1)


def _record(subject: Any, ids: torch.Tensor, rows: int) -> regard.Recording:
    with torch.no_grad(), regard.Recorder(subject, rows=rows) as recorder:
        subject.model(ids, logits_to_keep=1)
    return recorder.recording


def _generate(subject: Any, ids: torch.Tensor) -> None:
    subject.model.generate(ids, max_new_tokens=64, do_sample=False, eos_token_id=None)


def _generate_watched(subject: Any, ids: torch.Tensor) -> None:
    with regard.Recorder(subject):
        _generate(subject, ids)


def _apart(what: str, tokens: int) -> tuple[int, int]:
    """(peak bytes of a process that does this, bytes of queries and keys kept)."""
    command = [sys.executable, "-m", "benchmarks.long_recording", what, str(tokens)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    peak, kept = done.stdout.split()[-2:]
    return int(peak), int(kept)


def _alone(what: str, tokens: int) -> None:
    subject, ids = regard.load("smollm2"), text_of(tokens)
    kept = 0
    if what == "record":
        recording = _record(subject, ids, 4)
        kept = sum(t.untyped_storage().nbytes() for s in recording.sites for t in (s.query, s.key))
    else:
        _forward(subject.model, ids)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, kept)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _alone(sys.argv[1], int(sys.argv[2]))
    else:
        main()
