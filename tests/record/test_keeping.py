"""What is kept can be chosen, and what choosing costs is said."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.errors import InvalidArgument, TooLong
from regard.record import keeping

IDS = {"input_ids": torch.arange(4, 16)[None]}


def test_layers_and_kinds_leave_the_others_out(tiny_bert: Any) -> None:
    whole, part = regard.record(tiny_bert, IDS), regard.record(tiny_bert, IDS, layers=[2, 0], kinds=["self"])
    assert part.layers == (0, 2)
    assert torch.equal(part.weights(layer=2), whole.weights(layer=2))
    with pytest.raises(InvalidArgument, match=r"layers must be among 0 … 2; got 3"):
        regard.record(tiny_bert, IDS, layers=[3])
    with pytest.raises(InvalidArgument, match=r"kinds must be among self; got 'cross'"):
        regard.record(tiny_bert, IDS, kinds=["cross"])
    with pytest.raises(InvalidArgument, match=r"kinds must be among self, causal, cross; got 'other'"):
        regard.Recorder(tiny_bert, kinds=["other"])


def test_weights_can_be_kept_in_place_of_queries_and_keys(tiny_bert: Any, tmp_path: Path) -> None:
    whole, kept = regard.record(tiny_bert, IDS), regard.record(tiny_bert, IDS, keep="weights")
    assert kept.sites[0].query.numel() == 0
    kept.save(tmp_path / "kept.regard")
    for recording in (kept, regard.open(tmp_path / "kept.regard")):
        torch.testing.assert_close(recording.weights(layer=1), whole.weights(layer=1), rtol=1e-5, atol=1e-7)
        torch.testing.assert_close(
            recording.weights(layer=1, head=3, rows=2), whole.weights(layer=1, head=3, rows=2)
        )


@pytest.mark.parametrize("keep", ["qk", "weights"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_fewer_bits_halve_the_bytes_and_the_error_is_said(
    tiny_bert: Any, keep: Any, dtype: torch.dtype
) -> None:
    whole, small = regard.record(tiny_bert, IDS), regard.record(tiny_bert, IDS, keep=keep, dtype=dtype)
    site = small.sites[0]
    held = site.query if keep == "qk" else site.bias
    assert held is not None
    assert held.dtype == dtype
    (note,) = (note for note in small.provenance.notes if "Kept as" in note)
    found = re.search(r"at most (\S+) from", note)
    assert found is not None
    worst = max((small.weights(layer=i) - whole.weights(layer=i)).abs().max().item() for i in range(3))
    assert 0 < worst < 4 * float(found[1])  # measured on 8 rows of 12
    assert worst < (0.02 if dtype == torch.float16 else 0.2)


def test_too_many_weights_are_refused(tiny_bert: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "MOST_WEIGHTS", 100)
    with pytest.raises(TooLong, match='keep="qk"'):
        regard.record(tiny_bert, IDS, keep="weights")


@pytest.mark.parametrize(("name", "value"), [("keep", "all"), ("dtype", torch.int8)])
def test_what_cannot_be_kept_is_refused(tiny_bert: Any, name: str, value: Any) -> None:
    with pytest.raises(InvalidArgument, match=f"{name} must be"):
        regard.record(tiny_bert, IDS, **{name: value})
