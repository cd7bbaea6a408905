"""One measurement in this process: python -m benchmarks.beside JSON; prints one line of JSON.

Nothing but torch and transformers is imported here beside what is measured, so that it runs where this
project is not installed. One thread; times are seconds of the processor.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from functools import partial
from typing import Any

import torch

from benchmarks.beside import pages, ways
from benchmarks.report import forget_peak, paired, peak_bytes

CHECKED = 96  # tokens of the run in which a package's weights are compared with the model's own


def main(asked: dict[str, Any]) -> dict[str, Any]:
    """Do what is asked; an error of a package is an answer too."""
    torch.set_num_threads(1)
    try:
        return weights(**asked) if "way" in asked else pages.written(**asked)
    except Exception as error:  # whatever another package raises is what there is to say of it
        said = str(error).strip().splitlines()
        return {"failed": f"{type(error).__name__}: {said[0][:160] if said else ''}"}


def weights(way: str, folder: str, tokens: int, rounds: int) -> dict[str, Any]:
    """Time beside the plain forward, how much higher the process's memory rises, and the largest error."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    chosen = ways.WAYS[way](folder, model)
    error = _error(chosen, ways.eager(folder, model), 0 if chosen.runs > 1 else 3)
    ids = some_ids(tokens)
    forward, run = partial(ways.plain, model, ids), partial(chosen.run, ids)
    extra = -_peak(forward) + _peak(run)
    ratio = paired(forward, run, rounds=rounds, clock=time.process_time)
    return {
        "ratio": ratio.median,
        "detail": ratio.detail,
        "extra": extra,
        "error": error,
        "runs": chosen.runs,
    }


def some_ids(tokens: int) -> torch.Tensor:
    """Token ids of so many tokens, none of them special; the same in every process."""
    return torch.randint(20, 49_000, (1, tokens), generator=torch.Generator().manual_seed(0))


def _error(way: ways.Way, oracle: ways.Way, layer: int) -> float:
    ids = some_ids(CHECKED)
    found, true = way.weights(way.run(ids), layer), oracle.weights(oracle.run(ids), layer)
    return float((found.double() - true.double()).abs().max())


def _peak(work: partial[Any]) -> int:
    """The highest memory of this process while `work` runs and what it returns is held."""
    gc.collect()
    forget_peak()
    held = work()
    highest = peak_bytes()
    del held
    gc.collect()
    return highest


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
