"""What a page knows of a recording: a JSON header and one compressed chunk of weights per site.

    step[q] = max_k weight[q, k] / levels[q],  code[q, k] = round(weight[q, k] / step[q]),  |error| ≤ step / 2

A row gets enough levels (at most 255, one byte) to keep its error below 1/510 < 0.002, and more where the
recording is small enough to afford it. Runs of equal codes and the few distinct values of a row are all that
compresses in attention weights, so zlib looks for nothing else (Z_RLE): smaller than its default on trained
models, and ten times as fast. Learned sinks are one more column, after the last key. A site that is too large
is "tiled" where a server can compute it bit by bit (show/tiles.py): its chunk is empty.
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
from regard.record.progress import Progress, telling
from regard.words import LANGUAGES, anew, key_of, say

if TYPE_CHECKING:
    from jaxtyping import Float

    from regard.record.recording import Recording
    from regard.record.site import Site

FORMAT = "regard.payload"
VERSION = 1
MAX_WEIGHTS = 64_000_000
MOST_THREADS = 8  # each holds the weights of one site
MAX_SIDE = 1024  # queries or keys that a page draws at once
MAX_LEVELS = 255
MIN_LEVELS = 8
# A row of noise coded with L levels takes about log2(L) - 0.9 bits a weight after compression (measured on a
# random BERT). What a recording may spend decides L: 10 MB.
BUDGET_BITS = 80e6
_MISSING = ("notes.recovered", "notes.rows_missing")


@dataclass(frozen=True)
class Payload:
    """The header, JSON-able, and the chunks, one per site in the header's order."""

    header: dict[str, Any]
    chunks: tuple[bytes, ...]

    @property
    def tiled(self) -> bool:
        """Whether there are sites whose weights are not in here."""
        return any(site.get("tiled") for site in self.header["sites"])


def payload(
    recording: Recording, *, item: int = 0, tiled: bool = False, progress: Progress | None = None
) -> Payload:
    """Everything that a page shows of one item of a recording.

    With `tiled`, sites of more than 1024 queries or keys have an empty chunk, and so have all sites of a
    recording of more than 64 million weights: the page asks for their tiles. Without, it raises TooLong for
    more than 64 million weights. Raises RecordingError when a weight is not a number. `progress` is called
    with ("packing", sites done, sites in all).
    """
    sites = recording.sites
    shapes = [_shape(recording, site, item) for site in sites]
    count = sum(map(math.prod, shapes))
    if count > MAX_WEIGHTS and not tiled:
        raise TooLong(
            say("errors.payload_too_large", weights=count // 1_000_000, most=MAX_WEIGHTS // 1_000_000)
        )
    large = [tiled and (count > MAX_WEIGHTS or max(shape[1:]) > MAX_SIDE) for shape in shapes]
    floor = least_levels(
        sum(math.prod(shape) for shape, is_large in zip(shapes, large, strict=True) if not is_large)
    )

    def encoded(site: Site, is_large: bool) -> tuple[bytes, float, bool]:
        if is_large:
            return b"", 0.0, site.kind == "causal"
        weights = _weights(recording, site, item)
        if not bool(torch.isfinite(weights).all()):
            raise RecordingError(say("errors.not_a_number", site=site.name))
        chunk, precision = encode(weights, floor, least=1 if _lacks_weights(site) else 0)
        return chunk, precision, site.kind == "causal" and _looks_back_only(recording, site, item)

    # zlib and torch release the interpreter lock, so threads use every core.
    tell, results = telling(progress), list[tuple[bytes, float, bool]]()
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as threads:
        try:
            for result in threads.map(encoded, sites, large):
                tell("packing", len(results), len(sites))
                results.append(result)
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)
            raise
    tell("packing", len(sites), len(sites))
    described = [
        {
            **_describe(site),
            "causal": causal,
            "bytes": len(chunk),
            "precision": precision,
            **({"tiled": True} if is_large else {}),
        }
        for site, (chunk, precision, causal), is_large in zip(sites, results, large, strict=True)
    ]
    return Payload({**_header(recording, item), "sites": described}, tuple(chunk for chunk, _, _ in results))


def least_levels(count: int) -> int:
    """The fewest levels of a row, for a recording of `count` weights: 255 when small, at least 8."""
    affordable = math.log2(MAX_LEVELS) if count == 0 else BUDGET_BITS / count + 0.9
    return MAX_LEVELS if affordable >= math.log2(MAX_LEVELS) else max(MIN_LEVELS, int(2**affordable))


def encode(weights: Float[Tensor, "h q k"], floor: int = MAX_LEVELS, least: int = 0) -> tuple[bytes, float]:
    """The chunk of one site, and the largest error that decoding it can show.

    `least` is the code of weights that are too small for one of their own: 1 tells them from those that
    are 0.
    """
    weights = weights.detach().to("cpu", torch.float32)
    if weights.shape[-1]:
        largest = weights.amax(dim=-1, keepdim=True)  # (h, q, 1)
    else:
        largest = weights.new_zeros(*weights.shape[:2], 1)
    step = largest / (largest * MAX_LEVELS).ceil().clamp(floor, MAX_LEVELS)
    # An empty row has step 0: its codes are 0 as well, not 0 / 0.
    codes = (weights / torch.where(step > 0, step, 1.0)).round_().to(torch.uint8)
    if least:
        codes = codes.masked_fill_((codes == 0) & (weights > 0), least)
    chunk = _deflate((step.numpy().astype("<f4").tobytes(), codes.numpy().tobytes()))
    return chunk, float(step.max()) / (1 if least else 2) if step.numel() else 0.0


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


def _shape(recording: Recording, site: Site, item: int) -> tuple[int, int, int]:
    """(heads, queries, keys) of what a page shows, a learned sink counted as a key."""
    queries, keys = (recording.sequences[name].spans[item] for name in (site.queries, site.keys))
    return site.heads, len(queries), len(keys) + (site.sinks is not None)


def _weights(recording: Recording, site: Site, item: int) -> Float[Tensor, "h q k"]:
    """All weights of a site, and what its sinks take as a last column."""
    queries, keys = (recording.sequences[name].spans[item] for name in (site.queries, site.keys))
    rows, cols = slice(queries.start, queries.stop), slice(keys.start, keys.stop)
    with torch.no_grad():
        lse, scores = site.lse_of(item, rows), site.scores(item)
        weights = scores.weights(rows, cols, lse)
        if site.sinks is None:
            return weights
        return torch.cat([weights, scores.sink(lse, rows)[..., None]], dim=-1)


def _looks_back_only(recording: Recording, site: Site, item: int) -> bool:
    """Whether no query of a decoder may see what comes after it; in a prefix, as of an image, it may."""
    queries, keys = (recording.sequences[name].spans[item] for name in (site.queries, site.keys))
    rows, cols = slice(queries.start, queries.stop), slice(keys.start, keys.stop)
    allowed = site.scores(item).allowed(rows, cols)
    if allowed is None:
        return True
    every = allowed.expand(*allowed.shape[:-2], len(queries), len(keys))
    return not bool(every.triu(1 + len(keys) - len(queries)).any())


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
            "notes": [_note(note) for note in origin.notes],
        },
        "sequences": {
            name: {
                "tokens": list(tokens.texts),
                "special": list(tokens.special),
                "segments": list(tokens.segments),
                **({} if (first := sequence.generated_from(item)) is None else {"generated_from": first}),
            }
            for name, sequence in recording.sequences.items()
            for tokens in (sequence.tokens[item],)
        },
    }


def _note(note: str) -> dict[str, Any]:
    """A note in every language; `missing` when it says that a part of the run is."""
    said: dict[str, Any] = {language: anew(note, language) for language in LANGUAGES}
    return said | ({"missing": True} if key_of(note) in _MISSING else {})


def _describe(site: Site) -> dict[str, Any]:
    return {
        "name": site.name,
        "layer": site.layer,
        "kind": site.kind,
        "heads": site.heads,
        "queries": site.queries,
        "keys": site.keys,
        "max_error": _number(site.proof.max_error),
        **({"sinks": True} if site.sinks is not None else {}),
        **(
            {"head_numbers": list(site.head_numbers), "all_heads": site.all_heads}
            if site.cut is not None
            else {}
        ),
        **({"kept": site.largest.count} if site.largest is not None and _lacks_weights(site) else {}),
    }


def _lacks_weights(site: Site) -> bool:
    """Whether some weights were not kept: these are 0 in the chunk, and only these."""
    return site.largest is not None and site.largest.count < site.key.shape[2]


def _number(value: float) -> float | None:
    """JSON has no NaN, which is what a proof without rows gives."""
    return value if math.isfinite(value) else None
