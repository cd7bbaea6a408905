"""Is MultiHeadAttention as fast as torch.nn.MultiheadAttention? Training step and inference, self-attention.

Both hold the same weights and get the same (batch, length, width) vectors. Weights are compared per head, as
ours come; torch's default, their mean over heads, is noted beside.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from benchmarks.report import Row, at_most, noted, paired, write
from regard.nn import MultiHeadAttention

WIDTH, HEADS = 512, 8
SIZES = ((8, 128, 15), (4, 512, 9), (1, 2048, 7))  # batch, length, rounds


def main() -> dict[str, Any]:
    """Measure all sizes."""
    torch.set_num_threads(2)
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
    ours = MultiHeadAttention.from_torch(theirs)
    rows: list[Row] = []
    for batch, length, rounds in SIZES:
        x = torch.randn(batch, length, WIDTH)
        for weights, target in ((False, 1.0), (True, 0.8)):
            for training in (True, False):
                theirs.train(training)
                ours.train(training)
                if training:
                    baseline = _step(
                        lambda x, w=weights: theirs(x, x, x, need_weights=w, average_attn_weights=False), x
                    )
                    candidate = _step(lambda x, w=weights: ours(x, return_weights=w), x)
                else:
                    baseline = _infer(
                        lambda x, w=weights: theirs(x, x, x, need_weights=w, average_attn_weights=False), x
                    )
                    candidate = _infer(lambda x, w=weights: ours(x, return_weights=w), x)
                ratio = paired(baseline, candidate, rounds=rounds)
                what = f"{'training step' if training else 'inference'}, {batch} × {length}"
                what += ", weights per head" if weights else ""
                rows.append(at_most(what, ratio.median, target, detail=ratio.detail))
        theirs.eval()
        ours.eval()
        averaged = paired(
            _infer(lambda x: theirs(x, x, x), x),
            _infer(lambda x: ours(x, return_weights=True), x),
            rounds=rounds,
        )
        rows.append(
            noted(
                f"inference, {batch} × {length}, torch averages its weights",
                averaged.median,
                detail=averaged.detail,
            )
        )
    return write("modules", rows)


Module = Callable[[torch.Tensor], Any]


def _step(module: Module, x: torch.Tensor) -> Callable[[], None]:
    """Forward and backward, to the inputs and to every parameter."""

    def step() -> None:
        given = x.detach().requires_grad_()
        result = module(given)
        output = result if isinstance(result, torch.Tensor) else result[0]
        output.sum().backward()

    return step


def _infer(module: Module, x: torch.Tensor) -> Callable[[], None]:
    """Forward only, without gradients."""

    def infer() -> None:
        with torch.no_grad():
            module(x)

    return infer


if __name__ == "__main__":
    main()
