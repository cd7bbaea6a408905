"""Recordings to show, made by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

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


@pytest.fixture
def largest() -> Callable[[Callable[[], object]], int]:
    """How many numbers the largest tensor holds that is made while something works."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Watch(TorchDispatchMode):
        most = 0

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = function(*args, **(kwargs or {}))
            for tensor in result if isinstance(result, tuple | list) else (result,):
                if isinstance(tensor, torch.Tensor):
                    self.most = max(self.most, tensor.untyped_storage().nbytes() // tensor.element_size())
            return result

    def measured(work: Callable[[], object]) -> int:
        with Watch() as watch:
            work()
        return watch.most

    return measured
