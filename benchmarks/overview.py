"""What a picture of all weights of a head costs: time and memory beside PyTorch's fused attention on it."""

from __future__ import annotations

import time
from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F

from benchmarks.report import at_most, noted, paired, peak_extra_bytes, write
from regard.attend.tiles import Scores, pooled

LENGTH, CHANNELS, SIZE = 8192, 64, 256


def main() -> dict[str, Any]:
    """Measure `pooled` on one head of 8192 positions.

    What must be reached is measured on one thread in seconds of the processor, which other work on the
    machine does not stretch; the wall's seconds on all threads stand beside them.
    """
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(1, LENGTH, CHANNELS, generator=generator) for _ in range(3))
    scores = Scores(query, key, CHANNELS**-0.5)
    everything = slice(0, LENGTH)
    lse = scores.log_sum_exp(everything)

    def fused() -> None:
        F.scaled_dot_product_attention(query[None], key[None], value[None])

    def picture(reduce: Literal["max", "mean"]) -> None:
        pooled(scores, everything, everything, lse, SIZE, reduce)

    def unknown() -> None:
        pooled(scores, everything, everything, scores.log_sum_exp(everything), SIZE, "max")

    memory = max(peak_extra_bytes(lambda: picture("max")), peak_extra_bytes(lambda: picture("mean"))) / 1e6
    rows = [at_most("peak extra memory", memory, 64.0, unit="MB", detail="all weights: 268 MB")]
    all_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    one = {"rounds": 9, "clock": time.process_time}
    largest = paired(fused, lambda: picture("max"), **one)
    mean = paired(fused, lambda: picture("mean"), **one)
    both = paired(fused, unknown, **one)
    rows += [
        at_most("overview (max), lse known, one thread", largest.median, 1.0, detail=largest.detail),
        at_most("overview (mean), lse known, one thread", mean.median, 1.0, detail=mean.detail),
        noted("overview (max), lse unknown, one thread", both.median, detail=both.detail),
    ]
    torch.set_num_threads(all_threads)
    for reduce in ("max", "mean"):
        wall = paired(fused, partial(picture, reduce), rounds=9)
        rows.append(
            noted(f"overview ({reduce}), lse known, wall, all threads", wall.median, detail=wall.detail)
        )
    return write("overview", rows)


if __name__ == "__main__":
    main()
