"""How the time of one call grows with the number of words: all pairs, a window, and linear attention.

The lessons' chapter on the price shows these times (web/lessons.plugin.ts reads results/length.json), so each
row also says in numbers what it was measured at.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import regard
from benchmarks.report import write

CHANNELS, WINDOW = 64, 64
LENGTHS = tuple(256 * 2**i for i in range(9))
LONGEST_SQUARE = 16384  # all pairs of 65,536 words would take most of a minute

Call = Callable[[Tensor, Tensor, Tensor], Tensor]
WAYS: dict[str, tuple[str, Call]] = {
    "full": ("regard.attention", lambda q, k, v: regard.attention(q, k, v)),
    "window": (
        "regard.sliding_window_attention",
        lambda q, k, v: regard.sliding_window_attention(q, k, v, window=(WINDOW, WINDOW)),
    ),
    "linear": ("regard.linear_attention", lambda q, k, v: regard.linear_attention(q, k, v)),
}


def main() -> dict[str, Any]:
    """Time every way at every length, one head of 64 channels, and keep the shortest run."""
    torch.set_num_threads(2)
    generator = torch.Generator().manual_seed(0)
    rows = []
    for length in LENGTHS:
        q, k, v = torch.randn(3, 1, 1, length, CHANNELS, generator=generator)
        for way, (name, call) in WAYS.items():
            if way == "full" and length > LONGEST_SQUARE:
                continue
            rows.append(
                {
                    "what": f"{name}, {length} words",
                    "measured": shortest_s(lambda call=call, q=q, k=k, v=v: call(q, k, v)) * 1e3,
                    "target": None,
                    "unit": "ms",
                    "met": True,
                    "detail": f"1 head, {CHANNELS} channels" + (f", window {WINDOW}" * (way == "window")),
                    "name": name,
                    "way": way,
                    "length": length,
                    "channels": CHANNELS,
                    "window": WINDOW,
                }
            )
    return write("length", rows)


def shortest_s(work: Callable[[], object], spend_s: float = 1.5) -> float:
    """The shortest of the runs that fit into `spend_s`, at least three: other work only lengthens a run."""
    work()
    times: list[float] = []
    until = time.perf_counter() + spend_s
    while len(times) < 3 or time.perf_counter() < until:
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


if __name__ == "__main__":
    main()
