"""The tables "beside others" of both READMEs, from results/peers.json: python -m benchmarks.beside.table"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from benchmarks.beside.browser import SHOWS

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "peers.json"
START, END = "<!-- beside others: made by benchmarks/beside/table.py -->", "<!-- end -->"
READMES = {"en": "README.md", "fr": "README.fr.md"}

# How a row's name in the results reads in a README; a package's name with its version stays as it is.
NAMES = {
    "regard, recorded and proven": ("Regard: recorded and checked", "Regard : enregistré et vérifié"),
    "regard, and then every weight": (
        "Regard: then every weight computed",
        "Regard : puis chaque poids calculé",
    ),
    "transformers eager": ("transformers, `output_attentions=True`",) * 2,
    "regard": ("Regard",) * 2,
}
_ROW = re.compile(r"(?P<name>.+?), (?:12 × 12 × )?(?P<tokens>\d+) tokens(?:[:,] (?P<rest>.+))?")
_HEADS = {
    "en": (
        ("every weight of smollm2 (30 × 9 heads)", "512 tokens", "1024 tokens", "memory at 1024"),
        ("one page, 12 × 12 heads", "43 tokens", "512 tokens", "written in", "opens offline"),
    ),
    "fr": (
        ("tous les poids de smollm2 (30 × 9 têtes)", "512 jetons", "1024 jetons", "mémoire à 1024"),
        ("une page, 12 × 12 têtes", "43 jetons", "512 jetons", "écrite en", "s’ouvre hors ligne"),
    ),
}
_UNITS = {"fr": {"MB": "Mo", "MiB": "Mio"}}
_OPENS = {"en": ("no", "yes"), "fr": ("non", "oui")}

Cell = tuple[float | None, str, str]  # measured, unit, detail
Found = dict[tuple[str, int, str], Cell]


def read(rows: list[dict[str, Any]]) -> Found:
    """{(name, tokens, what of it): its numbers} of the rows that say for how many tokens."""
    found: Found = {}
    for row in rows:
        if match := _ROW.fullmatch(row["what"]):
            found[match["name"], int(match["tokens"]), match["rest"] or ""] = (
                row["measured"],
                row["unit"],
                row["detail"],
            )
    return found


def tables(rows: list[dict[str, Any]], language: str) -> str:
    """Both tables in Markdown: what all weights cost, what a page of them weighs."""
    found = read(rows)
    costs, pages = _HEADS[language]
    pages_of = [name for name, _, _ in found if name.startswith("page of ")]
    others = [name for name, _, _ in found if not name.startswith("page of ")]
    lines = _head(costs)
    for name in dict.fromkeys(others):
        whole = [found.get((name, n, ""), found.get((name, n, "all layers"))) for n in (512, 1024)]
        memory = found.get((name, 1024, "extra peak memory"))
        if any(whole):
            lines.append(_line(_label(name, language), [*whole, memory], language))
    lines += ["", *_head(pages)]
    for name in dict.fromkeys(pages_of):
        cells = [
            found.get((name, tokens, rest))
            for tokens, rest in (
                (43, "size"),
                (512, "size"),
                (512, "time to write"),
                (43, "asks the network for"),
            )
        ]
        lines.append(_line(_label(name.removeprefix("page of "), language), cells, language))
    return "\n".join(lines)


def put(text: str, made: str) -> str:
    """`text` with what stands between the two marks replaced."""
    before, start, rest = text.partition(START)
    _, end, after = rest.partition(END)
    if not (start and end):
        raise ValueError(f"the marks {START} and {END} must stand in the text, in this order")
    return f"{before}{START}\n\n{made}\n\n{END}{after}"


def said(cell: Cell | None, language: str) -> str:
    """A number as a reader of the language writes it: three digits, no more; a dash where there is none."""
    measured, unit, detail = cell or (None, "", "")
    if measured is None:
        return "—"
    if unit == "files":
        return _OPENS[language][detail == SHOWS]
    digits = 0 if abs(measured) >= 100 else 1 if abs(measured) >= 10 else 2
    number = f"{measured:.{digits}f}"
    if language == "fr":
        number = number.replace(".", ",")
    return f"{number} {_UNITS.get(language, {}).get(unit, unit)}"


def main() -> None:
    """Write both READMEs anew."""
    rows = json.loads(RESULTS.read_text(encoding="utf-8"))["rows"]
    for language, name in READMES.items():
        path = ROOT / name
        path.write_text(put(path.read_text(encoding="utf-8"), tables(rows, language)), encoding="utf-8")


def _head(titles: tuple[str, ...]) -> list[str]:
    return [f"| {' | '.join(titles)} |", "| --- |" + " ---: |" * (len(titles) - 1)]


def _line(label: str, cells: list[Cell | None], language: str) -> str:
    return f"| {' | '.join([label, *(said(cell, language) for cell in cells)])} |"


def _label(name: str, language: str) -> str:
    return NAMES.get(name, (name, name))[language == "fr"]


if __name__ == "__main__":
    main()
