"""How soon is something to see when the explorer or a lesson is opened from disk, and how heavy is it?

A fresh Chromium context opens each file. Measured are the browser's own first contentful paint and the time
until the first figure has drawn its numbers, both from the start of the navigation.
"""

from __future__ import annotations

import gzip
import os
import shutil
import statistics
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.report import Row, at_most, write

ROUNDS = 7

FIRST = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"
# A frame after the element is there, it has been drawn.
DRAWN = "() => new Promise(requestAnimationFrame).then(() => performance.now())"


def main() -> dict[str, Any]:
    from playwright.sync_api import sync_playwright

    from regard.lessons.folder import write_folder
    from regard.show.pages import write_page

    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    path = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)))
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        explorer = write_page("explore", Path(folder) / "explorer.html")
        lessons = write_page("learn", Path(folder) / "learn.html")
        chapter = write_folder(Path(folder) / "lessons")[0].parent / "fr" / "01-ask-and-answer.html"
        browser = driver.chromium.launch(executable_path=path)
        for what, file, picture in [
            ("the explorer", explorer, "section.values svg"),
            ("the lessons in one file", lessons, "figure .stage svg"),
            ("a chapter of the folder", chapter, "figure .stage svg"),
        ]:
            first, drawn = zip(
                *(_opened(browser, file.as_uri(), picture) for _ in range(ROUNDS)), strict=True
            )
            rows.append(at_most(f"{what}: first paint", statistics.median(first), 500, "ms"))
            rows.append(at_most(f"{what}: first figure drawn", statistics.median(drawn), 500, "ms"))
            size = len(gzip.compress(file.read_bytes())) / 1e3
            rows.append(at_most(f"{what}: compressed", size, 400, "kB"))
        browser.close()
    return write("first_picture", rows)


def _opened(browser: Any, address: str, picture: str) -> tuple[float, float]:
    """Milliseconds to the first paint and to the first figure."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    page.goto(address, wait_until="commit")
    page.locator(picture).first.wait_for()
    drawn = page.evaluate(DRAWN)
    page.wait_for_function(f"{FIRST} !== null")
    first = page.evaluate(FIRST)
    context.close()
    return float(first), float(drawn)


if __name__ == "__main__":
    main()
