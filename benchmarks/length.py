"""How the time of one call grows with the number of words: all pairs, a window, and linear attention.

The lessons' chapter on the price shows these times (web/lessons.plugin.ts reads results/length.json), so each
row also says in numbers what it was measured at.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import regard
from benchmarks.report import write

CHANNELS, WINDOW, SPEND_S = 64, 64, 60.0
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
    """Time every way at every length, one head of 64 channels on one thread, and keep the shortest run.

    The cases take turns, so that other work on the machine, which only lengthens a run, spares some of each.
    """
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    shortest = {
        (length, way): math.inf
        for length in LENGTHS
        for way in WAYS
        if way != "full" or length <= LONGEST_SQUARE
    }
    inputs = {length: torch.randn(3, 1, 1, length, CHANNELS, generator=generator) for length in LENGTHS}
    until = time.perf_counter() + SPEND_S
    while time.perf_counter() < until:
        for length, way in shortest:
            start = time.perf_counter()
            WAYS[way][1](*inputs[length])
            shortest[length, way] = min(shortest[length, way], time.perf_counter() - start)
    return write("length", [row(length, way, seconds) for (length, way), seconds in shortest.items()])


def row(length: int, way: str, seconds: float) -> dict[str, Any]:
    name = WAYS[way][0]
    return {
        "what": f"{name}, {length} words",
        "measured": seconds * 1e3,
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


if __name__ == "__main__":
    main()
