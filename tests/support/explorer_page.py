"""How a test reads the explorer's page, and where in it things are."""

from __future__ import annotations

import re
from typing import Any


def weights(page: Any) -> list[float]:
    """The bars of the word that asks; a forbidden one counts as 0."""
    said = page.locator("[data-testid^=weight-]").all_inner_texts()
    return [float(text.replace(",", ".") or 0) for text in said]


def winner(page: Any) -> str:
    row = weights(page)
    return page.get_by_test_id(f"word-{row.index(max(row))}").locator(".text").inner_text()


def entropy(page: Any) -> float:
    found = re.search(r"\d+[.,]\d+", page.locator(".entropy").inner_text())
    assert found
    return float(found[0].replace(",", "."))


def centre(page: Any, selector: str) -> tuple[float, float]:
    box = page.locator(selector).bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


TIP, PLANE = "[data-testid=query] .grip", "section.keys svg"


def plane_point(page: Any, x: float, y: float, plane: str = PLANE) -> tuple[float, float]:
    """Pixels of a point of the keys panel, whose square reaches from −3.6 to 3.6."""
    box = page.locator(plane).bounding_box()
    return box["x"] + box["width"] * (0.5 + x / 7.2), box["y"] + box["height"] * (0.5 - y / 7.2)


def drag(page: Any, start: tuple[float, float], *way: tuple[float, float]) -> None:
    page.mouse.move(*start)
    page.mouse.down()
    for point in way:
        page.mouse.move(*point, steps=4)
    page.mouse.up()
