"""Regard computes, records, shows and explains the attention of transformers.

Every public name is listed here and imported when it is first used, so that `import regard` costs next to
nothing.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from regard.version import __version__

# public name -> module that holds it
_NAMES = {
    "attention": "regard.attend.attention",
    "Attended": "regard.attend.attention",
    "scaled_dot_product_attention": "regard.attend.drop_in",
    "merge": "regard.attend.merge",
    "online_softmax_attention": "regard.attend.online",
    "linear_attention": "regard.attend.linear",
    "sliding_window_attention": "regard.attend.window",
    "block_sparse_attention": "regard.attend.sparse",
    "additive_attention": "regard.attend.additive",
    "load": "regard.models.loading",
    "Subject": "regard.models.loading",
    "record": "regard.record.record",
    "Recorder": "regard.record.recorder",
    "Recording": "regard.record.recording",
    "open": "regard.record.store",
    "heatmap": "regard.show.heatmap",
    "export": "regard.show.html",
}
_MODULES = {
    "masks": "regard.attend.masks",
    "positions": "regard.attend.positions",
    "nn": "regard.nn",
    "errors": "regard.errors",
}

__all__ = ["__version__", *_NAMES, *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(_MODULES[name])
    if name in _NAMES:
        value = getattr(importlib.import_module(_NAMES[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'regard' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


class _Package(ModuleType):
    """This package, in which `regard.record` stays the function when something imports the folder `record`.

    Importing a submodule binds it to its name in the package: without this it would cover the function.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _NAMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


if TYPE_CHECKING:  # the same names, for editors and type checkers
    from regard import errors as errors
    from regard import nn as nn
    from regard.attend import masks as masks
    from regard.attend import positions as positions
    from regard.attend.additive import additive_attention as additive_attention
    from regard.attend.attention import Attended as Attended
    from regard.attend.attention import attention as attention
    from regard.attend.drop_in import scaled_dot_product_attention as scaled_dot_product_attention
    from regard.attend.linear import linear_attention as linear_attention
    from regard.attend.merge import merge as merge
    from regard.attend.online import online_softmax_attention as online_softmax_attention
    from regard.attend.sparse import block_sparse_attention as block_sparse_attention
    from regard.attend.window import sliding_window_attention as sliding_window_attention
    from regard.models.loading import Subject as Subject
    from regard.models.loading import load as load
    from regard.record.record import record as record
    from regard.record.recorder import Recorder as Recorder
    from regard.record.recording import Recording as Recording
    from regard.record.store import open as open
    from regard.show.heatmap import heatmap as heatmap
    from regard.show.html import export as export
