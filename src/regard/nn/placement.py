"""Where a module's parameters are made: the two keywords that every module of torch takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    import torch


class Placement(TypedDict, total=False):
    """device and dtype of new parameters; default: torch's."""

    device: torch.device | str | None
    dtype: torch.dtype | None
