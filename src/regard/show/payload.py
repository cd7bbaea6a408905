"""What a page knows of a recording: a JSON header and one compressed chunk of weights per site.

    step[q] = max_k weight[q, k] / levels[q],  code[q, k] = round(weight[q, k] / step[q]),  |error| ≤ step / 2

A row gets enough levels (at most 255, one byte) to keep its error below 1/510 < 0.002, and more where the
recording is small enough to afford it. Runs of equal codes and the few distinct values of a row are all that
compresses in attention weights, so zlib looks for nothing else (Z_RLE): smaller than its default on trained
models, and ten times as fast.
"""

from __future__ import annotations

import math
import os
import zlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.errors import RecordingError, TooLong
from regard.words import say

if TYPE_CHECKING:
    from jaxtyping import Float

    from regard.record.recording import Recording
    from regard.record.site import Site

FORMAT = "regard.payload"
VERSION = 1
MAX_WEIGHTS = 64_000_000
MOST_THREADS = 8  # each holds the weights of one site
MAX_LEVELS = 255
MIN_LEVELS = 8
# A row of noise coded with L levels takes about log2(L) - 0.9 bits a weight after compression (measured on a
# random BERT). What a recording may spend decides L: 10 MB.
BUDGET_BITS = 80e6


@dataclass(frozen=True)
class Payload:
    """The header, JSON-able, and the chunks, one per site in the header's order."""

    header: dict[str, Any]
    chunks: tuple[bytes, ...]


def payload(recording: Recording, *, item: int = 0) -> Payload:
    """Everything that a page shows of one item of a recording.

    Raises TooLong for more than 64 million weights, RecordingError when a weight is not a number.
    """
    sites = recording.sites
    count = sum(math.prod(recording.shape(site.layer, site.kind, item)) for site in sites)
    if count > MAX_WEIGHTS:
        raise TooLong(
            say("errors.payload_too_large", weights=count // 1_000_000, most=MAX_WEIGHTS // 1_000_000)
        )
    floor = least_levels(count)

    def encoded(site: Site) -> tuple[bytes, float]:
        weights = recording.weights(layer=site.layer, kind=site.kind, item=item)
        if not bool(torch.isfinite(weights).all()):
            raise RecordingError(say("errors.not_a_number", site=site.name))
        return encode(weights, floor)

    # zlib and torch release the interpreter lock, so threads use every core.
    with ThreadPoolExecutor(max_workers=min(os.cpu_count() or 1, MOST_THREADS)) as threads:
        results = list(threads.map(encoded, sites))
    described = [
        {**_describe(site), "bytes": len(chunk), "precision": precision}
        for site, (chunk, precision) in zip(sites, results, strict=True)
    ]
    return Payload({**_header(recording, item), "sites": described}, tuple(chunk for chunk, _ in results))


def least_levels(count: int) -> int:
    """The fewest levels of a row, for a recording of `count` weights: 255 when small, at least 8."""
    affordable = math.log2(MAX_LEVELS) if count == 0 else BUDGET_BITS / count + 0.9
    return MAX_LEVELS if affordable >= math.log2(MAX_LEVELS) else max(MIN_LEVELS, int(2**affordable))


def encode(weights: Float[Tensor, "h q k"], floor: int = MAX_LEVELS) -> tuple[bytes, float]:
    """The chunk of one site, and the largest error that decoding it can show."""
    weights = weights.detach().to("cpu", torch.float32)
    if weights.shape[-1]:
        largest = weights.amax(dim=-1, keepdim=True)  # (h, q, 1)
    else:
        largest = weights.new_zeros(*weights.shape[:2], 1)
    step = largest / (largest * MAX_LEVELS).ceil().clamp(floor, MAX_LEVELS)
    # An empty row has step 0: its codes are 0 as well, not 0 / 0.
    codes = (weights / torch.where(step > 0, step, 1.0)).round_().to(torch.uint8)
    chunk = _deflate((step.numpy().astype("<f4").tobytes(), codes.numpy().tobytes()))
    return chunk, float(step.max()) / 2 if step.numel() else 0.0


def decode(chunk: bytes, heads: int, queries: int, keys: int) -> Float[Tensor, "h q k"]:
    """The weights of a chunk, as the page computes them: code · step of its row."""
    raw = bytearray(zlib.decompress(chunk))
    rows = heads * queries
    if len(raw) != rows * (4 + keys):
        raise RecordingError(say("errors.damaged_chunk", expected=rows * (4 + keys), got=len(raw)))
    if not rows * keys:
        return torch.zeros(heads, queries, keys)
    step = torch.frombuffer(raw, dtype=torch.float32, count=rows).reshape(heads, queries, 1)
    codes = torch.frombuffer(raw, dtype=torch.uint8, offset=rows * 4).reshape(heads, queries, keys)
    return codes * step


def _deflate(parts: Iterable[bytes]) -> bytes:
    packer = zlib.compressobj(6, zlib.DEFLATED, zlib.MAX_WBITS, 9, zlib.Z_RLE)
    return b"".join([*(packer.compress(part) for part in parts), packer.flush()])


def _header(recording: Recording, item: int) -> dict[str, Any]:
    """All but the sites, JSON-able."""
    origin, proof = recording.provenance, recording.proof
    return {
        "format": FORMAT,
        "version": VERSION,
        "text": list(origin.texts[item]) if item < len(origin.texts) else [],
        "model": {
            "name": origin.model,
            "class": origin.model_class,
            "source": origin.source,
            "licence": origin.licence,
        },
        "provenance": {
            "kernel": ", ".join(origin.kernels),
            "dtype": origin.dtype,
            "device": origin.device,
            "door": ", ".join(origin.doors),
            "rows_checked": proof.rows,
            "max_error": _number(proof.max_error),
            "created": origin.created,
            "versions": dict(origin.versions),
            "truncated": origin.truncated,
            "notes": list(origin.notes),
        },
        "sequences": {
            name: {
                "tokens": list(tokens.texts),
                "special": list(tokens.special),
                "segments": list(tokens.segments),
            }
            for name, sequence in recording.sequences.items()
            for tokens in (sequence.tokens[item],)
        },
    }


def _describe(site: Site) -> dict[str, Any]:
    return {
        "name": site.name,
        "layer": site.layer,
        "kind": site.kind,
        "heads": site.heads,
        "queries": site.queries,
        "keys": site.keys,
        "causal": site.kind == "causal",
        "max_error": _number(site.proof.max_error),
    }


def _number(value: float) -> float | None:
    """JSON has no NaN, which is what a proof without rows gives."""
    return value if math.isfinite(value) else None
