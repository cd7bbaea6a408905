"""What regard.nn exports, when it is loaded, and that every example in its docstrings holds."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import subprocess
import sys

import pytest

import regard.nn

MODULES = sorted(module.name for module in pkgutil.iter_modules(regard.nn.__path__, "regard.nn."))


def test_the_exported_names_are_these():
    assert regard.nn.__all__ == [
        "Alibi",
        "BlockCache",
        "BlockOptions",
        "BlockOutput",
        "BytePair",
        "Decoder",
        "Encoder",
        "FeedForward",
        "KVCache",
        "LearnedPositions",
        "MultiHeadAttention",
        "Projections",
        "RelativePositions",
        "RotaryPositions",
        "SinusoidalPositions",
        "TokenEmbedding",
        "Transformer",
        "TransformerBlock",
        "choose",
    ]
    assert all(getattr(regard.nn, name).__module__.startswith("regard.nn.") for name in regard.nn.__all__)


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"module 'regard\.nn' has no attribute 'Attention'"):
        _ = regard.nn.Attention


def test_importing_the_package_loads_no_torch():
    command = "import sys, regard.nn; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", command], check=False).returncode == 0


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_hold(name):
    result = doctest.testmod(importlib.import_module(name))
    assert result.failed == 0
