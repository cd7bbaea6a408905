"""What a picture of all weights of a head costs: time and memory beside PyTorch's fused attention on it."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from benchmarks.report import at_most, noted, paired, peak_extra_bytes, write
from regard.attend.tiles import Scores, pooled

LENGTH, CHANNELS, SIZE = 8192, 64, 256


def main() -> dict[str, Any]:
    """Measure `pooled` on one head of 8192 positions."""
    torch.set_num_threads(2)
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(1, LENGTH, CHANNELS, generator=generator) for _ in range(3))
    scores = Scores(query, key, CHANNELS**-0.5)
    everything = slice(0, LENGTH)
    lse = scores.log_sum_exp(everything)

    def fused() -> None:
        F.scaled_dot_product_attention(query[None], key[None], value[None])

    def picture(reduce: str) -> None:
        pooled(scores, everything, everything, lse, SIZE, reduce)  # type: ignore[arg-type]

    def unknown() -> None:
        pooled(scores, everything, everything, scores.log_sum_exp(everything), SIZE, "max")

    largest = paired(fused, lambda: picture("max"), rounds=9)
    mean = paired(fused, lambda: picture("mean"), rounds=9)
    both = paired(fused, unknown, rounds=7)
    memory = max(peak_extra_bytes(lambda: picture("max")), peak_extra_bytes(lambda: picture("mean"))) / 1e6
    rows = [
        at_most(
            f"overview (max) of one head, n = {LENGTH}, lse known", largest.median, 1.0, detail=largest.detail
        ),
        at_most(
            f"overview (mean) of one head, n = {LENGTH}, lse known", mean.median, 1.0, detail=mean.detail
        ),
        noted("the same (max), lse unknown: one more pass", both.median, detail=both.detail),
        at_most("peak extra memory", memory, 64.0, unit="MB", detail="all weights: 268 MB"),
    ]
    return write("overview", rows)


if __name__ == "__main__":
    main()
