"""What many tests need: the small real model, loaded once."""

from __future__ import annotations

from typing import Any

import pytest

import regard


@pytest.fixture(scope="session")
def minilm() -> Any:
    """A BERT of 6 layers × 12 heads, from the cache, or fetched once."""
    return regard.load("minilm")
