"""What does it cost to import regard, and to ask the command line for help?"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from typing import Any

from benchmarks.report import at_most, noted, write

ROUNDS = 15


def main() -> dict[str, Any]:
    """Measure in fresh processes, in turn."""
    torch, both, alone, helped = [], [], [], []
    for _ in range(ROUNDS):
        torch.append(_ms("import torch"))
        both.append(_ms("import torch, regard"))
        alone.append(_ms("import regard"))
        helped.append(_ms("import sys; sys.argv = ['regard', '--help']; from regard.cli import main; main()"))
    beyond = statistics.median(b - t for b, t in zip(both, torch, strict=True))
    return write(
        "startup",
        [
            at_most("import regard beyond import torch", beyond, 50.0, "ms", "median of paired differences"),
            at_most("regard --help, the whole process", statistics.median(helped), 400.0, "ms"),
            noted("import regard alone, the whole process", statistics.median(alone), "ms"),
            noted("for comparison: import torch", statistics.median(torch), "ms"),
        ],
    )


def _ms(code: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
    return (time.perf_counter() - start) * 1e3


if __name__ == "__main__":
    main()
