"""tests/golden/tiles.json, which the page's map is tested against too, is what Python computes.

Write it anew after a change of the format: python tests/show/test_tiles_golden.py
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import torch

from regard.show.tiles import SIDE, Place, Reduce, Tiles, decode, top_level

GOLDEN = Path(__file__).parents[1] / "golden" / "tiles.json"
COUNT = 270
PLACES = (Place(1, 0, 0), Place(0, 0, 1), Place(0, 1, 0), Place(0, 1, 1))
REDUCES: tuple[Reduce, ...] = ("max", "mean")


def golden(recording: Any) -> dict[str, Any]:
    """Some tiles of a causal head, and pixels of them that a page must find there."""
    tiles = Tiles(recording)
    described = []
    for place in PLACES:
        for reduce in REDUCES if place.level else REDUCES[:1]:  # one weight is its own mean
            rows = _pixels(place.span("row", COUNT), place.level)
            columns = _pixels(place.span("column", COUNT), place.level)
            encoded = tiles.tile(0, 1, place, reduce)
            pixels = decode(encoded, rows, columns)
            described.append(
                {
                    "level": place.level,
                    "row": place.row,
                    "column": place.column,
                    "reduce": reduce,
                    "rows": rows,
                    "columns": columns,
                    "bytes": base64.b64encode(encoded).decode(),
                    "sample": [
                        [r, c, float(pixels[r, c])]
                        for r in range(0, rows, max(1, rows // 7))
                        for c in range(0, columns, max(1, columns // 7))
                    ],
                }
            )
    lengths = [1, 255, 256, 257, 1024, 3000, 16_384, 100_000]
    return {
        "side": SIDE,
        "queries": COUNT,
        "keys": COUNT,
        "tops": [[n, top_level(n, n)] for n in lengths],
        "tiles": described,
    }


def _pixels(span: slice, level: int) -> int:
    return -((span.start - span.stop) // (1 << level))


def test_the_golden_file_holds_what_python_computes() -> None:
    stored, now = json.loads(GOLDEN.read_text(encoding="utf-8")), golden(_recording())
    for key in ("side", "queries", "keys", "tops"):
        assert stored[key] == now[key]
    for old, new in zip(stored["tiles"], now["tiles"], strict=True):
        for key in ("level", "row", "column", "reduce", "rows", "columns"):
            assert old[key] == new[key]
        # exp and matmul of another machine may differ in the last bits
        before, after = (
            decode(base64.b64decode(tile["bytes"]), tile["rows"], tile["columns"]) for tile in (old, new)
        )
        assert torch.equal(before == -1, after == -1)
        assert float((before - after).abs().max()) <= max(0.0, float(before.max())) * 1e-4 + 1e-6


def test_the_golden_bytes_decode_to_the_pixels_beside_them() -> None:
    for tile in json.loads(GOLDEN.read_text(encoding="utf-8"))["tiles"]:
        pixels = decode(base64.b64decode(tile["bytes"]), tile["rows"], tile["columns"])
        assert all(float(pixels[r, c]) == value for r, c, value in tile["sample"])


def _recording() -> Any:
    from by_hand import recording_of

    return recording_of([f"w{i}" for i in range(COUNT)], layers=1, causal_from=0, sharpness=2.0)


if __name__ == "__main__":
    import sys

    sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
    text = json.dumps(golden(_recording()), ensure_ascii=False, separators=(",", ":"))
    GOLDEN.write_text(text + "\n", encoding="utf-8")
