"""How a measurement is taken, printed and kept: paired ratios, a table, JSON with the machine."""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Row:
    """One line of a table: what was measured, and what it must reach (None: for information only)."""

    what: str
    measured: float | None  # None: it could not be measured; the detail says why
    target: float | None
    unit: str = "×"
    met: bool = True
    detail: str = ""


def at_most(what: str, measured: float, target: float, unit: str = "×", detail: str = "") -> Row:
    """A row that is met when `measured` is no more than `target`."""
    return Row(what, measured, target, unit, measured <= target, detail)


def noted(what: str, measured: float, unit: str = "×", detail: str = "") -> Row:
    """A row that must reach nothing: for comparison."""
    return Row(what, measured, None, unit, True, detail)


def missing(what: str, reason: str) -> Row:
    """A row for what could not be measured here, and why."""
    return Row(what, None, None, "", True, reason)


@dataclass(frozen=True)
class Ratio:
    """How much longer one thing takes than another, both measured in turn in one run."""

    median: float
    low: float  # the quartiles of the rounds' ratios
    high: float
    baseline_ms: float

    @property
    def detail(self) -> str:
        """The spread and the baseline, for a row's detail."""
        return f"quartiles {self.low:.3f} … {self.high:.3f}; baseline {self.baseline_ms:.2f} ms"


def paired(
    baseline: Callable[[], object],
    candidate: Callable[[], object],
    *,
    rounds: int = 15,
    repeat: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> Ratio:
    """The median over rounds of time(candidate) / time(baseline); the order within a round alternates.

    Other work on the machine disturbs both halves of a round alike, which a ratio of two medians would not
    see. With one thread, `clock=time.process_time` counts only the seconds in which this process ran.
    """
    baseline()
    candidate()
    ratios, times = [], []
    for i in range(rounds):
        if i % 2:
            above = _seconds(candidate, repeat, clock)
            below = _seconds(baseline, repeat, clock)
        else:
            below = _seconds(baseline, repeat, clock)
            above = _seconds(candidate, repeat, clock)
        ratios.append(above / below)
        times.append(below / repeat)
    low, median, high = statistics.quantiles(ratios, n=4)
    return Ratio(median, low, high, statistics.median(times) * 1e3)


def peak_extra_bytes(work: Callable[[], object], interval_s: float = 0.001) -> int:
    """How far the resident memory of this process rises above where it was, at the worst moment of `work`."""
    import threading

    import psutil

    process = psutil.Process()
    before = process.memory_info().rss
    peak, done = before, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(interval_s):
            peak = max(peak, process.memory_info().rss)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        work()
    finally:
        done.set()
        watcher.join()
    return max(peak, process.memory_info().rss) - before


def forget_peak() -> None:
    """Let `peak_bytes` count from now on, where the system can."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_bytes() -> int:
    """The highest resident memory of this process.

    Linux gives a new process the peak of the one that started it as its `ru_maxrss`; VmHWM is its own.
    """
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def write(name: str, rows: Sequence[Row | dict[str, Any]]) -> dict[str, Any]:
    """Print `rows` as a table and keep them in results/<name>.json; returns what was kept."""
    plain = [asdict(row) if isinstance(row, Row) else row for row in rows]
    kept = {"name": name, "machine": machine(), "rows": plain}
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(kept, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"\n{name}")
    for row in plain:
        must = "" if row["target"] is None else f"must reach {row['target']:g}"
        verdict = "" if row["target"] is None else "met" if row["met"] else "NOT MET"
        measured = "—" if row["measured"] is None else f"{row['measured']:.3f}"
        print(f"  {row['what']:<58} {measured:>10} {row['unit']:<4} {must:<18} {verdict:<8} {row['detail']}")
    return kept


def machine() -> dict[str, Any]:
    """What the numbers were measured on."""
    import torch

    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "date": datetime.now(UTC).date().isoformat(),
    }


def _cpu() -> str:
    if sys.platform.startswith("linux"):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def _seconds(work: Callable[[], object], repeat: int, clock: Callable[[], float]) -> float:
    start = clock()
    for _ in range(repeat):
        work()
    return clock() - start
