"""What the cheaper ways cost beside PyTorch's full attention, and how near that is to what this machine can.

8 heads, 64 channels, float32, 2 threads, n = 8192 if not said otherwise. "Pairs" is the part of all pairs
that a way has to look at: the ratio that it could reach if its small products ran as fast as large ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.report import Row, at_most, noted, paired, peak_extra_bytes, write
from regard import masks
from regard.attend.linear import linear_attention
from regard.attend.online import online_softmax_attention
from regard.attend.sparse import block_sparse_attention
from regard.attend.window import sliding_window_attention

HEADS, CHANNELS, LENGTH = 8, 64, 8192
Attend = Callable[[Tensor, Tensor, Tensor], Any]


def main() -> dict[str, Any]:
    """Measure every way forward, and forward and backward."""
    torch.set_num_threads(2)
    bird = masks.bigbird(64, window=3, global_blocks=2, random_blocks=3)
    rows = [*rates()]
    rows += against_full(
        "window (255, 0)",
        partial(sliding_window_attention, window=(255, 0)),
        0.07,
        0.08,
        masks.window(255, 0),
    )
    rows += against_full(
        "window (255, 0), 64 global tokens",
        partial(sliding_window_attention, window=(255, 0), global_tokens=64),
        0.10,
        0.12,
        masks.window(255, 0) | masks.global_tokens(64),
    )
    rows += against_full(
        "BigBird: 3 blocks of 64, 2 global, 3 random",
        lambda q, k, v: block_sparse_attention(q, k, v, bird),
        0.10,
        0.14,
        bird,
    )
    rows += against_full("linear, causal", partial(linear_attention, causal=True), 0.07, 0.06, None)
    query, key, value = inputs(4096)
    full = partial(F.scaled_dot_product_attention, query, key, value)
    online = paired(full, lambda: online_softmax_attention(query, key, value), rounds=9)
    rows.append(
        at_most("online softmax in tiles, n = 4096: forward", online.median, 3.0, detail=online.detail)
    )
    rows += memory()
    return write("cheaper", rows)


def against_full(
    name: str, attend: Attend, forward: float, both: float, mask: masks.Mask | None
) -> list[Row]:
    """One way beside full attention: forward, then forward and backward."""
    query, key, value = inputs(LENGTH)
    pairs = "" if mask is None else f"pairs {share(mask):.3f}; "

    def train(way: Attend) -> None:
        leaves = [x.detach().requires_grad_() for x in (query, key, value)]
        way(*leaves).backward(query)

    once = paired(
        lambda: F.scaled_dot_product_attention(query, key, value), lambda: attend(query, key, value), rounds=9
    )
    twice = paired(lambda: train(F.scaled_dot_product_attention), lambda: train(attend), rounds=5)
    return [
        at_most(f"{name}: forward", once.median, forward, detail=pairs + once.detail),
        at_most(f"{name}: forward and backward", twice.median, both, detail=pairs + twice.detail),
    ]


def share(mask: masks.Mask) -> float:
    """The part of all pairs that a mask allows, tile by tile."""
    lengths, seen = (LENGTH, LENGTH), 0
    for start in range(0, LENGTH, 512):
        seen += int(mask.tile(slice(start, start + 512), slice(0, LENGTH), lengths).sum())
    return seen / LENGTH**2


def rates() -> list[Row]:
    """The roofline: how fast this machine multiplies and exponentiates."""
    large, small = torch.randn(2048, 2048), torch.randn(256, 64, 64)
    band = torch.randn(256, 64, 320)
    numbers = -torch.rand(1 << 18)
    into = torch.empty_like(numbers)
    full = partial(F.scaled_dot_product_attention, *inputs(4096))
    work = 4 * HEADS * 4096**2 * CHANNELS
    return [
        noted(
            "product of 2048 × 2048 matrices", 2 * 2048**3 / seconds(lambda: large @ large) / 1e9, "GFLOP/s"
        ),
        noted(
            "products (64 × 64) · (64 × 320), a block by its band",
            2 * 256 * 64 * 64 * 320 / seconds(lambda: small @ band) / 1e9,
            "GFLOP/s",
        ),
        noted(
            "torch.exp in the cache",
            len(numbers) / seconds(lambda: torch.exp(numbers, out=into)) / 1e9,
            "G/s",
        ),
        noted(
            "torch.exp2 in the cache",
            len(numbers) / seconds(lambda: torch.exp2(numbers, out=into)) / 1e9,
            "G/s",
        ),
        noted("full attention, n = 4096", work / seconds(full) / 1e9, "GFLOP/s", "its two products alone"),
    ]


def memory() -> list[Row]:
    """Peak memory, forward and backward, at a length 4 times as large: 4 times as much, not 16."""
    rows = []
    for name, short in (("linear", 16384), ("online", 4096)):
        little, much = (_in_a_fresh_process(name, n) / 1e6 for n in (short, 4 * short))
        weights = 2 * 4 * (4 * short) ** 2 / 1e6
        what = f"{name}: peak memory, n = {4 * short} over n = {short}, 2 heads"
        detail = f"{little:.0f} MB, {much:.0f} MB; all weights: {weights:.0f} MB"
        rows.append(at_most(what, much / little, 5.0, detail=detail))
    return rows


def _in_a_fresh_process(name: str, length: int) -> int:
    """Memory that an earlier measurement has freed would hide what this one takes."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_peak_of_a_step, name, length).result()


def _peak_of_a_step(name: str, length: int) -> int:
    attend: Attend = partial(linear_attention, causal=True) if name == "linear" else online_softmax_attention

    def step(n: int) -> None:
        leaves = [x.requires_grad_() for x in inputs(n, heads=2)]
        attend(*leaves).sum().backward()

    step(256)
    return peak_extra_bytes(partial(step, length))


def inputs(length: int, heads: int = HEADS) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values, the same in every run."""
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(1, heads, length, CHANNELS, generator=generator) for _ in range(3))
    return query, key, value


def seconds(work: Callable[[], object]) -> float:
    """The best of nine."""
    work()
    times = []
    for _ in range(9):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


if __name__ == "__main__":
    main()
