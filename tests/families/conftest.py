"""The table of docs/families.md: written by `pytest tests/families --families-table`, else compared."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--families-table", action="store_true", help="write docs/families.md from this run")
