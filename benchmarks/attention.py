"""How much `regard.attention` costs beside PyTorch's own function, and what weights and decoding cost.

All in float32 on two threads, b = 1, 8 heads of 64 channels, each ratio from alternating runs of both sides.
The last rows are the machine's limits: what a product of matrices and a pass over a cache reach here.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

import regard
from benchmarks.report import Ratio, Row, at_most, noted, paired, write

LENGTHS = (128, 512, 2048, 8192)
KEYS = 32_768


def main() -> dict[str, Any]:
    """Measure and keep the rows."""
    torch.set_num_threads(2)
    torch.manual_seed(0)
    rows: list[Row] = []
    with torch.inference_mode():
        for length in LENGTHS:
            rows += beside_pytorch(length)
        rows += weights()
        rows += decoding()
    return write("attention", rows)


def beside_pytorch(length: int) -> list[Row]:
    """No extras and with lse, plain, causal and padded."""
    query, key, value = torch.randn(3, 1, 8, length, 64).unbind()
    key_mask = torch.arange(length)[None] < length * 3 // 4
    asked = {
        "plain": ({}, {}),
        "causal": ({"causal": True}, {"is_causal": True}),
        "padded": ({"key_mask": key_mask}, {"attn_mask": key_mask[:, None, None]}),
    }
    rows = []
    for name, (ours, theirs) in asked.items():

        def baseline(theirs: Any = theirs) -> object:
            return scaled_dot_product_attention(query, key, value, **theirs)

        def alone(ours: Any = ours) -> object:
            return regard.attention(query, key, value, **ours)

        def with_lse(ours: Any = ours) -> object:
            return regard.attention(query, key, value, **ours, return_lse=True)

        for what, target, candidate in (
            ("", 1.10 if length == 128 else 1.02, alone),
            (" with lse", 1.05, with_lse),
        ):
            ratio = compare(baseline, candidate, length)
            rows.append(at_most(f"{name}{what}, n = {length}", ratio.median, target, detail=ratio.detail))
    return rows


def compare(baseline: Any, candidate: Any, length: int) -> Ratio:
    """More rounds where a call is short, so that every ratio takes a second or two."""
    return paired(baseline, candidate, rounds=max(5, min(101, 2**15 // length)), repeat=max(1, 512 // length))


def weights() -> list[Row]:
    """Output and weights against PyTorch's unfused path, which gives the output alone."""
    query, key, value = torch.randn(3, 1, 8, 2048, 64).unbind()

    def unfused() -> object:
        with sdpa_kernel(SDPBackend.MATH):
            return scaled_dot_product_attention(query, key, value)

    ratio = paired(unfused, lambda: regard.attention(query, key, value, return_weights=True), rounds=25)
    causal = paired(
        unfused, lambda: regard.attention(query, key, value, causal=True, return_weights=True), rounds=25
    )
    return [
        at_most(
            "with weights, n = 2048, to the unfused path without", ratio.median, 0.6, detail=ratio.detail
        ),
        noted("the same, causal", causal.median, detail=causal.detail),
    ]


def decoding() -> list[Row]:
    """One query on 32k keys, eight query heads to a key head, against a sum over keys and values."""
    rows = []
    for kv_heads in (2, 4):
        query = torch.randn(1, 8 * kv_heads, 1, 64)
        key, value = torch.randn(2, 1, kv_heads, KEYS, 64).unbind()

        def read(key: Any = key, value: Any = value) -> object:
            return key.sum(), value.sum()

        def ours(query: Any = query, key: Any = key, value: Any = value) -> object:
            return regard.attention(query, key, value, causal=True)

        def theirs(query: Any = query, key: Any = key, value: Any = value) -> object:
            return scaled_dot_product_attention(query, key, value, enable_gqa=True)

        def products(query: Any = query, key: Any = key, value: Any = value) -> object:
            scores = torch.bmm(query.view(-1, 8, 64), key[0].mT)
            return torch.bmm(scores, value[0])

        name = f"1 query, 32k keys, {kv_heads} × 8 heads"
        ratio = paired(read, ours, rounds=41)
        rows.append(at_most(f"{name}, to reading the cache", ratio.median, 1.3, detail=ratio.detail))
        ratio = paired(read, products, rounds=41)
        rows.append(noted(f"{name}: its two products alone", ratio.median, detail=ratio.detail))
        ratio = paired(theirs, ours, rounds=21)
        rows.append(noted(f"{name}, to PyTorch's own", ratio.median, detail=ratio.detail))
    square = torch.randn(2048, 2048)
    numbers = torch.randn(1 << 22)
    product = paired(lambda: square.sum(), lambda: square @ square, rounds=9)
    exponentials = paired(
        lambda: numbers.sum(), lambda: torch.softmax(numbers.view(-1, 2048), dim=-1), rounds=9
    )
    flops, width = 2 * 2048**3, 4 * numbers.numel()
    gigaflops = flops / (product.median * product.baseline_ms * 1e6)
    bandwidth = width / (exponentials.baseline_ms * 1e6)
    softmax = numbers.numel() / (exponentials.median * exponentials.baseline_ms * 1e6)
    # 8 rows · 2 operations for each number of 4 bytes: above 1 the products bound decoding, not the cache
    bound = (8 * 2 / 4) * bandwidth / gigaflops
    return [
        *rows,
        noted("decoding: time of the products at full speed, to reading", bound),
        noted("limit: product of matrices", gigaflops, "GF/s"),
        noted("limit: reading", bandwidth, "GB/s"),
        noted("limit: softmax", softmax, "G/s"),
    ]


if __name__ == "__main__":
    main()
