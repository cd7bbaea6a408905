"""What recording a Llama costs at length: time beside its plain forward, memory beside the bytes kept.

About twelve minutes on two cores; half of them are the five passes over 8192 tokens.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

import regard
from benchmarks.report import Row, at_most, forget_peak, noted, paired, peak_bytes, write

MIB = 1 << 20
LAYERS = 30
WRITTEN = 64  # tokens that are generated


def main() -> dict[str, Any]:
    """Measure smollm2 at 512, 2048, 8192 and 16,384 tokens.

    Ratios are of seconds of the processor on one thread, which other work on the machine does not stretch.
    What is longer than 2048 runs in processes of their own.
    """
    subject = regard.load("smollm2")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    rows = [*recorded(subject, 512, rounds=7), *recorded(subject, 2048, rounds=3), generated(subject, 2048)]
    torch.set_num_threads(threads)
    del subject
    return write("long_recording", [*rows, *at_length(8192), *beyond(16_384)])


def recorded(subject: regard.Subject, tokens: int, rounds: int) -> list[Row]:
    """Time of a recorded forward pass, without proof and with it."""
    ids = text_of(tokens)
    rows = []
    for what, checked, target in (("without", 0, 1.05), ("with", 4, 1.10)):
        record = partial(_record, subject, ids, checked)
        ratio = paired(partial(_forward, subject, ids), record, rounds=rounds, clock=time.process_time)
        what = f"recording smollm2, {tokens} tokens, {what} proof"
        rows.append(at_most(what, ratio.median, target, detail=ratio.detail))
    return rows


def generated(subject: regard.Subject, tokens: int, rounds: int = 2) -> Row:
    """Time of a recorded generation; the recording is whole and proven when the block ends."""
    ids = text_of(tokens)
    plain, watched = (partial(work, subject, ids) for work in (_generate, _generate_watched))
    ratio = paired(plain, watched, rounds=rounds, clock=time.process_time)
    return at_most(f"generating {WRITTEN} tokens after {tokens}", ratio.median, 1.15, detail=ratio.detail)


def at_length(tokens: int) -> list[Row]:
    """Time and peak memory where one pass takes long: each way once, after a first plain pass."""
    found = _apart("compare", tokens)
    plain = min(found["plain"])
    rows = []
    for way, target in (("without", 1.05), ("with", 1.10)):
        first, last = found["plain"]
        detail = f"{found[way]:.2f} s; plain {first:.2f} and {last:.2f} s, the quicker counts"
        what = f"recording smollm2, {tokens} tokens, {way} proof"
        rows.append(at_most(what, found[way] / plain, target, detail=detail))
    rows.append(straight_to_file(found, tokens))
    extra, kept = found["file_peak"] - found["plain_peak"], found["kept"]
    layers = extra / (kept / LAYERS)
    detail = f"{extra / MIB:.0f} MiB more; queries and keys of a layer are {kept / LAYERS / MIB:.0f} MiB"
    what = f"extra peak memory at {tokens} tokens, straight to a file"
    rows.append(at_most(what, layers, 2, "layers", detail=detail))
    extra = found["peak"] - found["plain_peak"]
    detail = f"{extra / MIB:.0f} MiB more for {kept / MIB:.0f} MiB of queries and keys"
    rows.append(
        at_most(
            f"extra peak memory at {tokens} tokens, beside what is kept", extra / kept, 1.2, detail=detail
        )
    )
    return rows


def straight_to_file(found: dict[str, Any], tokens: int) -> Row:
    """Time where queries and keys go to a file, with proof: of the wall, which waits for the disk."""
    ratio = found["file_wall"] / min(found["plain_wall"])
    seconds = (found["file_wall"], found["file"])
    detail = "{:.2f} s of the wall, the file made to last; {:.2f} s of the processor".format(*seconds)
    return at_most(f"recording smollm2, {tokens} tokens, straight to a file", ratio, 1.25, detail=detail)


def beyond(tokens: int) -> list[Row]:
    """A recording that no n × n could be stored of."""
    found = _apart("record", tokens)
    weights = LAYERS * 9 * tokens**2 * 4 / 1e9
    detail = (
        f"{found['seconds']:.0f} s; {found['kept'] / MIB:.0f} MiB kept; all weights would be {weights:.0f} GB"
    )
    return [
        at_most(f"peak memory of a process, {tokens} tokens", found["peak"] / 1e9, 24, "GB", detail),
        noted("bytes kept per token", found["kept"] / tokens / 1024, "KiB"),
    ]


def text_of(tokens: int) -> torch.Tensor:
    """Token ids of so many tokens, none of them special."""
    return torch.randint(20, 49_000, (1, tokens), generator=torch.Generator().manual_seed(0))


def _forward(subject: regard.Subject, ids: torch.Tensor) -> None:
    with torch.no_grad():
        subject.model(ids, logits_to_keep=1)


def _record(
    subject: regard.Subject, ids: torch.Tensor, rows: int, path: Path | None = None
) -> regard.Recording:
    with torch.no_grad(), regard.Recorder(subject, rows=rows, path=path) as recorder:
        subject.model(ids, logits_to_keep=1)
    return recorder.recording


def _generate(subject: Any, ids: torch.Tensor) -> None:
    subject.model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=WRITTEN,
        min_new_tokens=WRITTEN,
        do_sample=False,
    )


def _generate_watched(subject: Any, ids: torch.Tensor) -> None:
    with regard.Recorder(subject):
        _generate(subject, ids)


def _apart(what: str, tokens: int) -> dict[str, Any]:
    """What a process of its own finds.

    Every large tensor there is a mapping of its own, so that the peak is that of memory in use: the C library
    would else leave holes in its heap, more or fewer by what ran before.
    """
    command = [sys.executable, "-m", "benchmarks.long_recording", what, str(tokens)]
    surroundings = {**os.environ, "MALLOC_MMAP_THRESHOLD_": str(1 << 17)}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=surroundings)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _compare(subject: regard.Subject, ids: torch.Tensor) -> dict[str, Any]:
    """Plain, to a file, without proof, with proof, plain."""
    torch.set_num_threads(1)
    first = _watched(partial(_forward, subject, ids))
    with TemporaryDirectory() as folder:
        file = _watched(partial(_record, subject, ids, 4, Path(folder) / "long.regard"))
    without = _watched(partial(_record, subject, ids, 0))
    proven = _watched(partial(_record, subject, ids, 4))
    last = _watched(partial(_forward, subject, ids))
    return {
        "plain": [first.processor, last.processor],
        "plain_wall": [first.wall, last.wall],
        "without": without.processor,
        "with": proven.processor,
        "file": file.processor,
        "file_wall": file.wall,
        "plain_peak": first.peak,
        "file_peak": file.peak,
        "peak": proven.peak,
        "kept": proven.kept,
    }


@dataclass(frozen=True)
class Watched:
    """What a piece of work took: seconds, peak memory, and bytes of queries and keys in what it made."""

    processor: float
    wall: float
    peak: int
    kept: int


def _watched(work: Callable[[], regard.Recording | None]) -> Watched:
    gc.collect()
    forget_peak()
    wall, processor = time.perf_counter(), time.process_time()
    made = work()
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    peak = peak_bytes()
    sites = made.sites if made else ()
    kept = sum(t.numel() * t.element_size() for site in sites for t in (site.query, site.key))
    return Watched(processor, wall, peak, kept)


def _alone(what: str, tokens: int) -> dict[str, Any]:
    subject, ids = regard.load("smollm2"), text_of(tokens)
    _forward(subject, text_of(64))
    if what == "compare":
        return _compare(subject, ids)
    found = _watched(partial(_record, subject, ids, 4))
    return {"seconds": found.wall, "peak": found.peak, "kept": found.kept}


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(_alone(sys.argv[1], int(sys.argv[2]))))
    else:
        main()
