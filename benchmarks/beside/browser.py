"""Does a page open without a network? Asked of Chromium, which is told that there is none."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from benchmarks.report import Row, missing, noted

# True once the page shows a weight.
SHOWN = {
    "bertviz": "document.querySelectorAll('svg rect, svg line').length > 0",
    "attnview": "document.querySelectorAll('.destination').length > 0",
    "regard": "Number(document.querySelector('[data-testid=\"lines-canvas\"]')?.dataset.drawn ?? 0) > 0",
}
SHOWS = "shows weights without a network"
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_PATIENCE_MS = 8000


def opened(what: str, page: str, path: Path) -> Row:
    """How many things the page asks the network for, and whether it shows weights without them."""
    try:
        from playwright.sync_api import Error, TimeoutError, sync_playwright
    except ImportError:
        return missing(what, "no browser to open it with")
    asked: list[str] = []
    try:
        with sync_playwright() as driver:
            executable = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)
            browser = driver.chromium.launch(
                executable_path=executable, args=["--no-sandbox", "--disable-gpu"]
            )
            context = browser.new_context(offline=True)
            tab = context.new_page()
            tab.on("request", lambda request: asked.append(request.url))
            tab.goto(path.as_uri())
            try:
                tab.wait_for_function(SHOWN[page], timeout=_PATIENCE_MS)
                shown = SHOWS
            except TimeoutError:
                shown = "shows no weights without a network"
            browser.close()
    except Error as error:
        return missing(what, f"the browser failed: {str(error).splitlines()[0][:120]}")
    remote = {url for url in asked if url.startswith(("http:", "https:"))}
    return noted(what, float(len(remote)), "files", shown)
