"""The models that can be loaded by name, as data: for `regard models` and for the page."""

from __future__ import annotations

from typing import Any

from regard.models.cache import is_cached
from regard.models.catalogue import CATALOGUE
from regard.words import say


def listing() -> list[dict[str, Any]]:
    """One dict per model of the catalogue; `here` says whether it loads without a network."""
    return [
        {
            "name": entry.name,
            "description": say(entry.description),
            "layers": entry.layers,
            "heads": entry.heads,
            "size_bytes": entry.size_bytes,
            "licence": entry.licence,
            "sources": [entry.hub, f"{entry.wheel.project} {entry.wheel.version}"],
            "here": is_cached(entry),
        }
        for entry in CATALOGUE.values()
    ]
