"""16,384 tokens: how long for a row, a rectangle, a whole head, a tile, and until the page shows it?

One head of a causal model is compared with PyTorch's fused attention on that head, in one run. The page is
driven in Chromium. At 100,000 tokens: a whole head, the ten best keys of every query, and how long it takes
until Ctrl-C is obeyed.
"""

from __future__ import annotations

import os
import shutil
import signal
import statistics
import threading
import time
from typing import Any

import torch
import torch.nn.functional as F

from benchmarks.report import Row, at_most, noted, paired, peak_extra_bytes, write
from regard import masks
from regard.record.recording import Axis, Provenance, Recording
from regard.record.site import Proof, Site
from regard.record.tokens import numbered
from regard.serve.run import bind, run
from regard.serve.session import Session
from regard.show.readings import row
from regard.show.tiles import Place, Tiles, top_level

LONGEST = 100_000
LENGTH, HEADS, KV_HEADS, CHANNELS = 16_384, 9, 3, 64  # one layer of SmolLM2-135M
ROUNDS = 5
# Everything is in sight in four tiles: wait until at most so many of them are missing.
SHOWN = """
(most) => new Promise((done) => {
  const look = () => {
    const { level, missing } = document.querySelector('[data-testid="map-board"]')?.dataset ?? {}
    if (level === '5' && Number(missing) <= most) done()
    else requestAnimationFrame(look)
  }
  look()
})
"""


def main() -> dict[str, Any]:
    """Measure one recorded layer of SmolLM2's shape, causal, of random queries and keys."""
    torch.set_num_threads(1)  # for both sides; steadier than two on a machine that others use
    recording = _recording(LENGTH)
    rows = [*_api(recording), *_tiles(recording), *_page(_recording(LENGTH)), *_longest()]
    return write("longview", rows)


def _recording(length: int, heads: int = HEADS, kv_heads: int = KV_HEADS) -> Recording:
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(1, heads, length, CHANNELS, generator=generator)
    key = torch.randn(1, kv_heads, length, CHANNELS, generator=generator)
    site = Site(
        "layers.0.self_attn", 0, "causal", query, key, CHANNELS**-0.5, masks.causal(), proof=Proof(0, 0.0)
    )
    axis = Axis((numbered(length),), (range(length),))
    return Recording((site,), {"text": axis}, Provenance("random", "Llama"))


def _api(recording: Recording) -> list[Row]:
    site = recording.sites[0]
    site.lse_of(0, slice(0, LENGTH), 0)
    query, key = site.query[:, :1], site.key[:, :1]
    value = torch.randn(key.shape, generator=torch.Generator().manual_seed(1))

    def fused() -> None:
        F.scaled_dot_product_attention(query, key, value, is_causal=True)

    def everything() -> None:
        recording.overview(layer=0, head=0, size=256)

    whole = paired(fused, everything, rounds=ROUNDS)
    pieces = {
        "one row of weights of one head": (lambda: recording.rows(layer=0, head=0, row=LENGTH - 1), 20.0),
        "a rectangle of 512 × 512 weights": (
            lambda: recording.weights(layer=0, head=0, rows=slice(15_000, 15_512), cols=slice(9_000, 9_512)),
            30.0,
        ),
    }
    results = [
        at_most(f"{what}, n = {LENGTH}, lse known", _milliseconds(work), most, "ms")
        for what, (work, most) in pieces.items()
    ]
    overview = f"overview (max) of one causal head, n = {LENGTH}, lse known, against its SDPA"
    return [*results, at_most(overview, whole.median, 1.0, detail=whole.detail)]


def _tiles(recording: Recording) -> list[Row]:
    """What the server computes for the page, nothing known in advance."""
    top = top_level(LENGTH, LENGTH)

    def fresh() -> Tiles:
        recording.sites[0]._lse = recording.sites[0]._lse_known = None
        return Tiles(recording)

    def deepest() -> None:
        fresh().tile(0, 0, Place(0, 50, 30))

    def first() -> None:
        fresh().tile(0, 0, Place(top, 0, 0))

    def one_row() -> None:
        row(fresh(), 0, LENGTH - 1)

    memory = peak_extra_bytes(first) / 1e6
    return [
        noted("a tile of level 0, nothing known", _milliseconds(deepest), "ms", "256 × 256 weights"),
        noted("the tile of everything, nothing known", _milliseconds(first, 3), "ms", "made of its quarters"),
        noted("peak extra memory for it", memory, "MB", "all weights: 1074 MB"),
        noted("one row of all heads, nothing known", _milliseconds(one_row), "ms", f"{HEADS} heads"),
    ]


def _longest() -> list[Row]:
    """One head of 100,000 tokens: all weights would be 40 GB."""
    recording = _recording(LONGEST, 1, 1)
    site = recording.sites[0]

    def seconds(work: Any) -> float:
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    fused = seconds(lambda: F.scaled_dot_product_attention(site.query, site.key, site.key, is_causal=True))
    first = []
    memory = (
        peak_extra_bytes(lambda: first.append(seconds(lambda: recording.overview(layer=0, head=0)))) / 1e6
    )
    again = seconds(lambda: recording.overview(layer=0, head=0))
    best = seconds(lambda: recording.top_k(layer=0, head=0, k=10))
    waits = [1e3 * _until_obeyed(_recording(LONGEST, 1, 1), after) for after in (0.5, 1.0, 2.0)]
    both = f"{again:.1f} s, SDPA {fused:.1f} s"
    return [
        noted(f"overview of one causal head, n = {LONGEST}, nothing known", first[0], "s", "in tiles"),
        noted("peak extra memory for it", memory, "MB", "all weights: 40 GB"),
        at_most("the same, lse known, against its SDPA", again / fused, 1.0, detail=both),
        noted("the ten best keys of every query (top_k)", best, "s", "in tiles, lse known"),
        at_most("from Ctrl-C to the prompt", max(waits), 500.0, "ms", "overview, three moments"),
    ]


def _until_obeyed(recording: Recording, after_s: float) -> float:
    """Seconds from Ctrl-C, `after_s` into an overview, until it has ended."""
    pressed = 0.0

    def press() -> None:
        nonlocal pressed
        pressed = time.perf_counter()
        os.kill(os.getpid(), signal.SIGINT)

    threading.Timer(after_s, press).start()
    try:
        recording.overview(layer=0, head=0)
    except KeyboardInterrupt:
        return time.perf_counter() - pressed
    raise RuntimeError("the overview ended before it was interrupted")


def _milliseconds(work: Any, rounds: int = 15) -> float:
    work()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times)


def _page(recording: Recording) -> list[Row]:
    from playwright.sync_api import sync_playwright

    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    executable = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)))
    session, ready = Session(), threading.Event()
    start = time.perf_counter()
    session.show(recording)
    shown = time.perf_counter() - start
    door = bind()
    told = {"browser": False, "started": lambda _: ready.set()}
    threading.Thread(target=run, args=(session, door), kwargs=told, daemon=True).start()
    ready.wait(10)
    whole = '[data-testid="map-board"][data-missing="0"]'
    first, complete, zooms, nodes = [], [], [], 0
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=executable, args=["--no-sandbox", "--disable-gpu"])
        for head in range(3):  # another head each time: nothing of it is known
            page = browser.new_page(viewport={"width": 1440, "height": 900})
            start = time.perf_counter()
            page.goto(f"{door.link()}#head={head}&heads=all")
            page.evaluate(SHOWN, 3)
            first.append(time.perf_counter() - start)
            page.evaluate(SHOWN, 0)
            complete.append(time.perf_counter() - start)
            for _ in range(6):
                start = time.perf_counter()
                page.get_by_test_id("zoom-in").click()
                page.locator(whole).wait_for()
                zooms.append(1e3 * (time.perf_counter() - start))
                nodes = max(nodes, int(page.evaluate("document.querySelectorAll('*').length")))
            page.close()
        version = browser.version
        browser.close()
    spread = f"{min(zooms):.0f} … {max(zooms):.0f} ms"
    return [
        noted(f"the application takes over {LENGTH} tokens", 1e3 * shown, "ms", "nothing is computed"),
        noted("first part of the map, from the click on the link", statistics.median(first), "s", version),
        noted("the whole map", statistics.median(complete), "s", "log-sum-exp of every row included"),
        noted("zoom in once, until all tiles are drawn", statistics.median(zooms), "ms", spread),
        at_most("elements of the page", float(nodes), 3000.0, ""),
    ]


if __name__ == "__main__":
    main()
