"""Who hears of attention calls: what the doors ask of a recorder."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor, nn

from regard.record.call import Call


class CallListener(Protocol):
    """Takes calls that have been read already."""

    def watches(self, module: nn.Module) -> bool:
        """Whether calls of this module, from this thread, are wanted."""
        ...

    def take(self, module: nn.Module, call: Call, output: Tensor, *, door: str, kind: str) -> None:
        """Take note of a call that gave `output`, (b, q, h, v); `kind` is "" where only its mask can tell."""
        ...

    def refuse(self, module: nn.Module, reason: str) -> None:
        """Take note of a call that cannot be read."""
        ...
