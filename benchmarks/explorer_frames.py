"""Does the explorer keep 60 frames a second while a query is dragged among 12 words?

A real Chromium drags the query by one step a frame. Measured are the frames that came, and the work in each:
script, style and layout, which must fit into 16.7 ms with room for painting.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.report import Row, at_most, write

WORDS = "the,quick,brown,fox,jumps,over,the,lazy,dog,and,then,sleeps"
FRAMES = 240

# One move a frame, after which the page is laid out again. Gives milliseconds of frames, and of work in them.
DRAG = """
async (frames) => {
  const grip = document.querySelector('[data-testid=query]')
  const box = document.querySelector('section.keys svg').getBoundingClientRect()
  const say = (type, angle) => grip.dispatchEvent(new PointerEvent(type, {
    bubbles: true, pointerId: 1, button: 0, isPrimary: true,
    clientX: box.left + box.width * (0.5 + 0.3 * Math.cos(angle)),
    clientY: box.top + box.height * (0.5 - 0.3 * Math.sin(angle)),
  }))
  grip.setPointerCapture = () => {}
  const frame = () => new Promise(requestAnimationFrame)
  const gaps = [], work = []
  say('pointerdown', 0)
  let last = await frame()
  for (let i = 1; i <= frames; i++) {
    const begin = performance.now()
    say('pointermove', (i / frames) * 2 * Math.PI)
    await Promise.resolve()
    document.body.getBoundingClientRect()
    work.push(performance.now() - begin)
    const now = await frame()
    gaps.push(now - last)
    last = now
  }
  say('pointerup', 0)
  return [gaps, work, document.querySelector('[data-testid=answers]').textContent]
}
"""


def main() -> dict[str, Any]:
    from playwright.sync_api import sync_playwright

    from regard.show.pages import write_page

    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    path = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)))
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        file = write_page("explore", Path(folder) / "explorer.html")
        browser = driver.chromium.launch(executable_path=path)
        for heads in (1, 4):
            page = browser.new_page(viewport={"width": 1440, "height": 900})
            page.goto(f"{file.as_uri()}#lang=en&heads={heads}&words={WORDS}")
            page.get_by_test_id("query").wait_for()
            page.evaluate(DRAG, 60)  # the first frames also compile
            gaps, work, _ = page.evaluate(DRAG, FRAMES)
            page.close()
            name = f"12 words, {heads} head{'s' if heads > 1 else ''}"
            per_second = 1000 / statistics.median(gaps)
            rows.append(
                Row(f"{name}: frames a second", per_second, 59, "Hz", per_second >= 59, _spread(gaps))
            )
            rows.append(at_most(f"{name}: work in a frame", statistics.median(work), 8, "ms", _spread(work)))
        browser.close()
    return write("explorer_frames", rows)


def _spread(times: list[float]) -> str:
    return f"95 % of frames within {statistics.quantiles(times, n=20)[-1]:.1f} ms"


if __name__ == "__main__":
    main()
