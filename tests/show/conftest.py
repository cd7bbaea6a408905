"""Recordings to show, made by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from by_hand import HOSTILE, recording_of, small_recording
from regard.record.recording import Recording


@pytest.fixture
def by_hand() -> Callable[..., Recording]:
    return recording_of


@pytest.fixture
def small() -> Recording:
    """Two layers of three heads over seven tokens of a pair; the second layer is causal."""
    return small_recording()


@pytest.fixture
def hostile() -> Recording:
    """Tokens that try to break out of wherever they are put."""
    return recording_of(HOSTILE)
