"""Run every measurement in this folder in turn, or those named: python -m benchmarks [name …]"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

NOT_MEASUREMENTS = {"__init__", "__main__", "report"}


def main(names: list[str]) -> int:
    """Run the measurements; returns 1 when one of them does not reach what it must."""
    found = sorted(
        path.stem for path in Path(__file__).parent.glob("*.py") if path.stem not in NOT_MEASUREMENTS
    )
    missed = []
    for name in names or found:
        kept = importlib.import_module(f"benchmarks.{name}").main()
        missed += [f"{name}: {row['what']}" for row in kept["rows"] if not row["met"]]
    print("\n" + ("Everything is met." if not missed else "Not met:\n  " + "\n  ".join(missed)))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
