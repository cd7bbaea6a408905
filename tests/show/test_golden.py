"""tests/golden/payload.json, which the page's decoder is tested against too, is what Python writes and reads.

Write it anew after a change of the format: python tests/show/test_golden.py
"""

from __future__ import annotations

import base64
import json
import zlib
from pathlib import Path
from typing import Any

import torch

from regard.show.payload import decode, encode, payload

GOLDEN = Path(__file__).parents[1] / "golden" / "payload.json"


def golden(recording: Any) -> dict[str, Any]:
    """What the file holds: a payload, the weights that Python computes, and those that a page must show."""
    data = payload(recording)
    lengths = {name: len(sequence["tokens"]) for name, sequence in data.header["sequences"].items()}
    sites = list(zip(data.header["sites"], data.chunks, strict=True))
    exact = [recording.weights(layer=site["layer"], kind=site["kind"]) for site, _ in sites]
    shown = [
        decode(chunk, site["heads"], lengths[site["queries"]], lengths[site["keys"]]) for site, chunk in sites
    ]
    return {
        "header": data.header,
        "chunks": [base64.b64encode(chunk).decode() for chunk in data.chunks],
        "weights": [weights.tolist() for weights in exact],
        "shown": [weights.tolist() for weights in shown],
    }


def test_the_golden_file_holds_what_python_computes(small: Any) -> None:
    stored = json.loads(GOLDEN.read_text(encoding="utf-8"))
    now = golden(small)
    for site in (*stored["header"]["sites"], *now["header"]["sites"]):
        del site["bytes"]  # another zlib may find another compression
        site["precision"] = round(site["precision"], 6)
    assert stored["header"] == now["header"]
    for key in ("weights", "shown"):
        for old, new in zip(stored[key], now[key], strict=True):
            # exp and matmul of another machine may differ in the last bits of float32
            torch.testing.assert_close(torch.tensor(old), torch.tensor(new), rtol=1e-5, atol=1e-7)


def test_the_golden_chunks_decode_to_the_weights_shown_beside_them() -> None:
    stored = json.loads(GOLDEN.read_text(encoding="utf-8"))
    for site, chunk, weights, shown in zip(
        stored["header"]["sites"], stored["chunks"], stored["weights"], stored["shown"], strict=True
    ):
        count = len(stored["header"]["sequences"][site["queries"]]["tokens"])
        decoded = decode(base64.b64decode(chunk), site["heads"], count, count)
        assert torch.equal(decoded, torch.tensor(shown))
        assert float((decoded - torch.tensor(weights)).abs().max()) <= site["precision"] + 1e-7


def test_encoding_the_golden_weights_gives_the_golden_bytes() -> None:
    stored = json.loads(GOLDEN.read_text(encoding="utf-8"))
    for chunk, weights in zip(stored["chunks"], stored["weights"], strict=True):
        raw = zlib.decompress(base64.b64decode(chunk))
        assert zlib.decompress(encode(torch.tensor(weights))[0]) == raw


if __name__ == "__main__":
    import sys

    sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
    from by_hand import small_recording

    text = json.dumps(golden(small_recording()), ensure_ascii=False, separators=(",", ":"))
    GOLDEN.write_text(text + "\n", encoding="utf-8")
