"""What do other packages cost that give attention weights? Each is run here, beside this project.

They are installed into an environment of their own (benchmarks/beside), every measurement is a process of
its own, and what can not be had or fails is a row that says why.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import psutil

import regard
from benchmarks.beside.browser import opened
from benchmarks.beside.environment import ALONE, TOGETHER, Environment, pins, prepared
from benchmarks.report import Row, at_most, missing, noted, write
from regard.errors import RegardError
from regard.models.cache import cache_folder, folder_of
from regard.models.catalogue import CATALOGUE

ROOT = Path(__file__).parents[1]
MIB = 1 << 20
TIMEOUT_S = 400
PLACES = 30 * 9  # of smollm2: its layers and heads
VARIABLES = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}

# The way, its package, its name in the table, and (tokens, rounds). transformers and this project run in the
# present environment, the others in theirs; torch and transformers are the same releases in both.
TIMED: tuple[tuple[str, str, str, tuple[tuple[int, int], ...]], ...] = (
    ("regard", "", "regard, recorded and proven", ((512, 5), (1024, 3), (2048, 2))),
    ("regard_all", "", "regard, and then every weight", ((512, 3), (1024, 2))),
    ("eager", "", "transformers eager", ((512, 5), (1024, 3), (2048, 2))),
    ("transformer_lens", "transformer-lens", "", ((512, 3), (1024, 2))),
    ("nnterp", "nnterp", "", ((512, 3), (1024, 2))),
    ("attnread", "attnread", "", ((512, 2),)),
)
PAGES = (("regard", ""), ("attnview", "attnview"), ("bertviz", "bertviz"))
SIZES = {43: 1.2, 512: 15.0}  # tokens of a page, and the MB that this project's may have


def main() -> dict[str, Any]:
    """Measure on smollm2 what all weights cost, and on a BERT-base shape what a page of them weighs."""
    environment = prepared(cache_folder())
    rows = [row for way in TIMED for row in timed(environment, *way)]
    needed = PLACES * 8192**2 * 4 / 1e9
    rows.append(noted("transformers eager, 8192 tokens: not run, all weights would need", needed, "GB"))
    with tempfile.TemporaryDirectory() as folder:
        for page, package in PAGES:
            for tokens in SIZES:
                rows += paged(environment, page, package, tokens, Path(folder) / f"{page}.html")
    return write("peers", rows)


def timed(
    environment: Environment, way: str, package: str, name: str, sizes: tuple[tuple[int, int], ...]
) -> list[Row]:
    """Time and memory of one way to the weights, beside the plain forward of the same model."""
    rows: list[Row] = []
    for tokens, rounds in sizes:
        what = f"{name or _versioned(package)}, {tokens} tokens"
        needed = 0 if way == "regard" else PLACES * tokens**2 * 4 * 1.6
        found = _apart(environment, package, "smollm2", needed, way=way, tokens=tokens, rounds=rounds)
        if "failed" in found:
            rows.append(missing(what, found["failed"]))
            continue
        detail = f"at most {found['error']:.1g} from eager; {found['detail']}"
        if package in pins(ALONE.read_text(encoding="utf-8")):
            detail += "; with other releases of torch and transformers than it asks for"
        if found["runs"] > 1:  # only one of the layers was read
            rows.append(noted(f"{what}, one layer", found["ratio"], detail=detail))
            computed = f"computed: {found['runs']} times what one takes"
            rows.append(noted(f"{what}, all layers", found["ratio"] * found["runs"], detail=computed))
            continue
        ratio = found["ratio"]
        rows.append(
            at_most(what, ratio, 1.1, "×", detail) if way == "regard" else noted(what, ratio, "×", detail)
        )
        rows.append(noted(f"{what}: extra peak memory", found["extra"] / MIB, "MiB"))
    return rows


def paged(environment: Environment, page: str, package: str, tokens: int, path: Path) -> list[Row]:
    """Size of a page of 12 layers of 12 heads, the time to write it, and what it asks the network for."""
    what = f"page of {_versioned(package) if package else page}, 12 × 12 × {tokens} tokens"
    needed = 144 * tokens**2 * 250 if package else 0
    found = _apart(environment, package, "minilm", needed, page=page, tokens=tokens, path=str(path))
    if "failed" in found:
        return [missing(what, found["failed"])]
    size, name = found["bytes"] / 1e6, f"{what}: size"
    rows = [
        noted(name, size, "MB") if package else at_most(name, size, SIZES[tokens], "MB"),
        noted(f"{what}: time to write", found["seconds"], "s"),
    ]
    if tokens == min(SIZES):
        rows.append(opened(f"{what}: asks the network for", page, path))
    path.unlink()
    return rows


def _apart(environment: Environment, package: str, model: str, needed: float, **asked: Any) -> dict[str, Any]:
    """The answer of a process that does what is asked; {"failed": reason} where there is none."""
    print(f"  … {asked.get('way') or asked['page']}, {asked['tokens']} tokens", flush=True)
    if package and (reason := environment.lacks(package)):
        return {"failed": reason}
    if needed > (free := psutil.virtual_memory().available):
        return {"failed": f"not run: needs about {needed / 1e9:.0f} GB, {free / 1e9:.0f} GB are free"}
    try:
        asked["folder"] = _folder(model)
    except RegardError as error:
        return {"failed": f"{model} can not be had: {error}"}
    variables = os.environ | VARIABLES
    if package:
        variables.pop("PYTHONPATH", None)
    command = [
        str(environment.python if package else sys.executable),
        "-m",
        "benchmarks.beside",
        json.dumps(asked),
    ]
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=TIMEOUT_S
        )
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return {"failed": f"stopped after {TIMEOUT_S} s"}
    except (OSError, IndexError, ValueError) as error:
        return {"failed": f"no answer: {type(error).__name__}"}
    return answer


@cache
def _folder(model: str) -> str:
    """Where a model's files lie; they are fetched if they do not."""
    regard.load(model)
    return str(folder_of(CATALOGUE[model]))


def _versioned(package: str) -> str:
    version = (pins(TOGETHER.read_text(encoding="utf-8")) | pins(ALONE.read_text(encoding="utf-8")))[package]
    return f"{package} {version}"


if __name__ == "__main__":
    main()
