"""How a test turns the pages of the lessons and reads their figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PAGES = sorted(path.stem for path in (ROOT / "src/regard/lessons/fr").glob("*.md"))
CHAPTERS = [name for name in PAGES if name[:2].isdigit()]


def turn_to(page: Any, name: str, lang: str, theme: str = "light") -> None:
    """Go to another page without loading the file again."""
    page.evaluate("hash => { location.hash = hash }", f"page={name}&lang={lang}&theme={theme}")
    page.wait_for_function("lang => document.documentElement.lang === lang", arg=lang)
    page.wait_for_timeout(60)


def bars(page: Any, at: int = 0) -> dict[str, float]:
    rows = page.locator(".bars").nth(at).locator("li").all_inner_texts()
    found = [row.split("\n") for row in rows]
    return {f"{i} {row[0]}": float(row[-1].replace(",", ".")) for i, row in enumerate(found)}


def loudest(page: Any) -> str:
    weights = bars(page)
    return max(weights, key=lambda name: weights[name]).split(" ", 1)[1]
