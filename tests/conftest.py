"""What many tests need: the small real models, loaded once."""

from __future__ import annotations

from typing import Any

import pytest

import regard


@pytest.fixture(scope="session")
def minilm() -> Any:
    """A BERT of 6 layers × 12 heads, from the cache, or fetched once."""
    return regard.load("minilm")


@pytest.fixture(scope="session")
def smollm2() -> Any:
    """A Llama of 30 layers × 9 heads on 3 key heads, from the cache, or converted once."""
    return regard.load("smollm2")
