"""The payload holds every weight within what it promises, and says what it holds."""

from __future__ import annotations

import json
import zlib
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from by_hand import recording_of
from regard import words
from regard.attend import masks
from regard.errors import RecordingError, TooLong
from regard.show import payload as module
from regard.show.payload import MAX_LEVELS, MIN_LEVELS, decode, encode, least_levels, payload


def softmax_rows(heads: int, queries: int, keys: int, sharpness: float, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.softmax(sharpness * torch.randn(heads, queries, keys, generator=generator), dim=-1)


@given(
    heads=st.integers(1, 3),
    queries=st.integers(0, 5),
    keys=st.integers(0, 40),
    sharpness=st.sampled_from([0.0, 1.0, 10.0, 1000.0]),
    floor=st.sampled_from([MIN_LEVELS, 31, MAX_LEVELS]),
)
@settings(max_examples=60, deadline=None)
def test_every_weight_is_within_half_a_step_and_never_further_than_1_in_510(
    heads: int, queries: int, keys: int, sharpness: float, floor: int
) -> None:
    weights = softmax_rows(heads, queries, keys, sharpness)
    chunk, precision = encode(weights, floor)
    error = (decode(chunk, heads, queries, keys) - weights).abs()
    assert error.numel() == 0 or float(error.max()) <= precision + 1e-7
    assert precision <= 1 / 510 + 1e-9


def test_a_row_without_allowed_keys_and_forbidden_cells_are_exactly_zero() -> None:
    weights = softmax_rows(2, 4, 6, 3.0)
    weights[:, 0] = 0
    weights[..., 5] = 0
    shown = decode(encode(weights)[0], 2, 4, 6)
    assert bool((shown[:, 0] == 0).all())
    assert bool((shown[..., 5] == 0).all())


def test_the_largest_weight_of_a_row_is_exact() -> None:
    weights = softmax_rows(3, 20, 30, 2.0)
    shown = decode(encode(weights, MIN_LEVELS)[0], 3, 20, 30)
    torch.testing.assert_close(shown.amax(-1), weights.amax(-1), rtol=1e-6, atol=0)


def test_a_chunk_is_zlib_of_little_endian_steps_then_codes() -> None:
    weights = torch.tensor([[[0.5, 0.3, 0.2]]])
    raw = zlib.decompress(encode(weights)[0])
    step = np.frombuffer(raw, "<f4", count=1)
    codes = np.frombuffer(raw, np.uint8, offset=4)
    assert step[0] == np.float32(0.5 / 255)
    assert codes.tolist() == [255, 153, 102]


def test_small_recordings_get_all_levels_and_large_ones_at_least_eight() -> None:
    assert least_levels(0) == MAX_LEVELS
    assert least_levels(144 * 256 * 256) == MAX_LEVELS
    assert least_levels(144 * 512 * 512) == MIN_LEVELS
    assert least_levels(64_000_000) == MIN_LEVELS
    steps = [least_levels(count) for count in range(1_000_000, 64_000_000, 1_000_000)]
    assert steps == sorted(steps, reverse=True)


def test_every_weight_of_a_recording_is_within_the_precision_that_its_header_states(small: Any) -> None:
    data = payload(small)
    assert len(data.chunks) == len(small.sites) == len(data.header["sites"])
    for site, chunk in zip(data.header["sites"], data.chunks, strict=True):
        weights = small.weights(layer=site["layer"], kind=site["kind"])
        shown = decode(chunk, site["heads"], 7, 7)
        assert float((shown - weights).abs().max()) <= site["precision"] + 1e-7
        assert site["precision"] < 0.002
        assert site["bytes"] == len(chunk)


def test_the_header_is_json_and_tells_all_that_the_page_needs(small: Any) -> None:
    header = json.loads(json.dumps(payload(small).header, allow_nan=False))
    assert header["format"] == "regard.payload"
    assert header["version"] == 1
    assert header["text"] == ["[CLS] le chat [SEP] il dort [SEP]"]
    assert header["model"] == {
        "name": "by hand",
        "class": "None",
        "source": "tests",
        "licence": "Apache-2.0",
    }
    assert header["provenance"]["rows_checked"] == 8
    assert header["provenance"]["max_error"] == 2e-7
    assert header["sequences"]["text"]["segments"] == [0, 0, 0, 0, 1, 1, 1]
    assert header["sequences"]["text"]["special"] == [True, False, False, True, False, False, True]
    assert [site["causal"] for site in header["sites"]] == [False, True]
    assert {site["queries"] for site in header["sites"]} == {"text"}


def test_a_recording_of_more_than_64_million_weights_is_refused_before_any_is_computed(
    by_hand: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recording = by_hand(["a"] * 100, layers=1, heads=1)
    monkeypatch.setattr(module, "MAX_WEIGHTS", 9_999)
    monkeypatch.setattr(module, "encode", lambda *_: pytest.fail("computed"))
    with pytest.raises(TooLong, match="Keep it with “regard record"):
        payload(recording)


def test_weights_that_are_not_numbers_are_refused_with_the_site(by_hand: Any) -> None:
    recording = by_hand(["a", "b"])
    recording.sites[1].query[0, 0, 0, 0] = float("nan")
    with pytest.raises(RecordingError, match=r"encoder\.layer\.1\.attention are not numbers"):
        payload(recording)


def test_a_chunk_of_the_wrong_length_is_refused() -> None:
    chunk, _ = encode(torch.ones(1, 1, 1))
    with pytest.raises(RecordingError, match="expected 6 bytes, got 5"):
        decode(chunk, 1, 1, 2)


def test_messages_are_in_the_language_in_force(by_hand: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WEIGHTS", 1)
    token = words._language.set("fr")
    try:
        with pytest.raises(TooLong, match="Gardez-le avec « regard record"):
            payload(by_hand(["a", "b"]))
    finally:
        words._language.reset(token)


def test_a_decoder_with_a_prefix_that_sees_itself_is_not_shown_as_causal() -> None:
    recording = recording_of(list("abcdef"), causal_from=0)
    site = recording.sites[0]
    site.mask = masks.causal() | masks.prefix(3)
    shown = payload(recording)
    assert [one["causal"] for one in shown.header["sites"]] == [False, True]
    weights = decode(shown.chunks[0], *recording.shape(0))
    assert float(weights[:, 0, 2].min()) > 0, "the first token reads the third"
    assert float(weights[:, 3, 4].max()) == 0
