"""How large is an exported page, how long does it take to build, and how quickly does it open?"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from transformers import BertConfig, BertModel

import regard
from benchmarks.report import Row, at_most, write
from regard.show.payload import decode, payload

ROOT = Path(__file__).parents[1]
ROUNDS = 5
# Notes the time of the first frame with lines, counted from the start of the navigation.
WATCH = """
window.pictured = new Promise((done) => {
  const look = () => {
    const canvas = document.querySelector('[data-testid="lines-canvas"]')
    const ready = canvas && canvas.dataset.drawn !== '0'
    requestAnimationFrame(ready ? () => setTimeout(() => done(performance.now())) : look)
  }
  look()
})
"""
SWITCH = """
async (layer) => {
  const canvas = document.querySelector('[data-testid="lines-canvas"]')
  const start = performance.now()
  document.querySelector(`[data-testid="layer-${layer}"]`).click()
  while (!canvas.dataset.site.includes(`layer.${layer}.`)) await new Promise(requestAnimationFrame)
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done)))
  return performance.now() - start
}
"""


def main() -> dict[str, Any]:
    """Measure minilm and a BERT-base of random weights on this project's own prose."""
    torch.set_num_threads(2)
    torch.manual_seed(0)
    minilm = regard.load("minilm")
    base = regard.Subject(BertModel(BertConfig()).eval(), minilm.tokenizer, "bert-base", "random weights")
    text = "\n".join((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "DESIGN.md"))
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "base.html"
        long = regard.record(base, text, truncate=True)
        rows = [*_built("BERT-base shape, 512 tokens", long, page, most_mb=15.0), _error(long)]
        rows += _built(
            "minilm, 512 tokens", regard.record(minilm, text, truncate=True), Path(folder) / "m.html", 10.0
        )
        short = regard.record(base, " ".join(text.split()[:20]))
        rows += _built(f"BERT-base shape, {len(short.tokens())} tokens", short, Path(folder) / "s.html", 1.2)
        rows += _opened(page)
    return write("export", rows)


def _built(what: str, recording: regard.Recording, path: Path, most_mb: float) -> list[Row]:
    """Size of the file, and the time from a fresh recording to it."""
    seconds = []
    for _ in range(ROUNDS):
        for site in recording.sites:
            site._lse = site._lse_known = None  # nothing computed ahead
        start = time.perf_counter()
        regard.export(recording, path)
        seconds.append(time.perf_counter() - start)
    detail = f"{len(recording.tokens())} tokens; {min(seconds):.2f} … {max(seconds):.2f} s"
    return [
        at_most(f"export of {what}: size", path.stat().st_size / 1e6, most_mb, "MB"),
        at_most(f"export of {what}: time to build", statistics.median(seconds), 3.0, "s", detail),
    ]


def _error(recording: regard.Recording) -> Row:
    """The largest difference between a weight of the page and Python's."""
    data, count = payload(recording), len(recording.tokens())
    worst = max(
        float((decode(chunk, site.heads, count, count) - recording.weights(layer=site.layer)).abs().max())
        for site, chunk in zip(recording.sites, data.chunks, strict=True)
    )
    return at_most("largest error of a weight in the page", worst, 0.002, "")


def _opened(path: Path) -> list[Row]:
    """First picture, switch of layers and number of elements in Chromium, from the disk."""
    from playwright.sync_api import sync_playwright

    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    executable = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)))
    first, switches, nodes = [], [], 0
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=executable, args=["--no-sandbox", "--disable-gpu"])
        for _ in range(ROUNDS):
            page = browser.new_page(viewport={"width": 1440, "height": 900})
            page.add_init_script(WATCH)
            page.goto(path.as_uri(), wait_until="commit")
            first.append(float(page.evaluate("window.pictured")))
            switches += [float(page.evaluate(SWITCH, layer)) for layer in range(1, 12)]
            nodes = max(nodes, int(page.evaluate("document.querySelectorAll('*').length")))
            page.close()
        version = browser.version
        browser.close()
    spread = f"{min(switches):.0f} … {max(switches):.0f} ms over {len(switches)} switches"
    return [
        at_most("first picture in Chromium", statistics.median(first) / 1e3, 1.5, "s", f"Chromium {version}"),
        at_most("switch of layers, median", statistics.median(switches), 100.0, "ms", spread),
        at_most("elements of the page", float(nodes), 3000.0, ""),
    ]


if __name__ == "__main__":
    main()
