"""Benchmarks beside other packages: the parts that measure nothing."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT))
from benchmarks.beside import environment, table  # noqa: E402
from benchmarks.beside.browser import SHOWS  # noqa: E402


def test_pins_are_read_past_comments_and_empty_lines() -> None:
    text = "# why\n\ntorch==2.13.0\n  a-b.c==1.0rc1  # not 2.0\n"
    assert environment.pins(text) == {"torch": "2.13.0", "a-b.c": "1.0rc1"}


@pytest.mark.parametrize("line", ["torch", "torch>=2", "-r other.txt", "torch==2.0; python_version < '3.12'"])
def test_what_is_not_pinned_is_refused_with_its_line(line: str) -> None:
    with pytest.raises(ValueError, match=r"line 2: expected name==version, got .*; pin it"):
        environment.pins(f"a==1\n{line}\n")


def test_an_environment_is_named_by_its_pins_and_nothing_else() -> None:
    one = environment.name_of({"a": "1", "b": "2"}, {"c": "3"})
    assert one == environment.name_of({"b": "2", "a": "1"}, {"c": "3"})
    others = (
        ({"a": "1", "b": "3"}, {"c": "3"}),
        ({"a": "1"}, {"b": "2", "c": "3"}),
        ({"a": "1", "b": "2"}, {}),
    )
    assert len({one, *(environment.name_of(*pinned) for pinned in others)}) == 4


def test_both_requirement_files_pin_and_agree_with_the_lock_file() -> None:
    together = environment.pins(environment.TOGETHER.read_text(encoding="utf-8"))
    assert environment.pins(environment.ALONE.read_text(encoding="utf-8"))
    locked = environment.pins((ROOT / "constraints.txt").read_text(encoding="utf-8"))
    assert {name: together[name] for name in environment.BASE} == {n: locked[n] for n in environment.BASE}


def test_a_package_lacks_what_everything_needs() -> None:
    there = environment.Environment(Path("python"), {"bertviz": "not installed: no such release"})
    assert there.lacks("bertviz") == "not installed: no such release"
    assert there.lacks("attnview") == ""
    assert environment.Environment(Path("python"), {"torch": "no network"}).lacks("attnview") == "no network"


ROWS = [
    {"what": what, "measured": measured, "unit": unit, "detail": detail}
    for what, measured, unit, detail in (
        ("transformers eager, 512 tokens", 1.234, "×", "quartiles"),
        ("transformers eager, 512 tokens: extra peak memory", 300.0, "MiB", ""),
        ("transformers eager, 8192 tokens: not run, all weights would need", 72.5, "GB", ""),
        ("slow 1.0, 512 tokens, one layer", 9.0, "×", ""),
        ("slow 1.0, 512 tokens, all layers", 270.0, "×", ""),
        ("lost 2.0, 512 tokens", None, "", "not installed"),
        ("page of regard, 12 × 12 × 43 tokens: size", 0.578, "MB", ""),
        ("page of regard, 12 × 12 × 43 tokens: asks the network for", 0.0, "files", SHOWS),
    )
]


def test_tables_hold_what_was_measured_and_a_dash_where_nothing_was() -> None:
    lines = table.tables(ROWS, "en").splitlines()
    assert "| transformers, `output_attentions=True` | 1.23 × | — | — |" in lines
    assert "| slow 1.0 | 270 × | — | — |" in lines
    assert "| lost 2.0 | — | — | — |" in lines
    assert "| Regard | 0.58 MB | — | — | yes |" in lines


def test_french_tables_have_decimal_commas_and_french_units() -> None:
    assert "| Regard | 0,58 Mo | — | — | oui |" in table.tables(ROWS, "fr").splitlines()


def test_only_what_stands_between_the_marks_is_replaced() -> None:
    text = f"before\n{table.START}\nold\n{table.END}\nafter\n"
    made = table.put(text, "| new |")
    assert made == f"before\n{table.START}\n\n| new |\n\n{table.END}\nafter\n"
    assert table.put(made, "| new |") == made
    with pytest.raises(ValueError, match="must stand in the text"):
        table.put("no marks", "| new |")


@pytest.mark.parametrize(("language", "name"), table.READMES.items())
def test_readmes_say_what_the_committed_results_say(language: str, name: str) -> None:
    rows = json.loads(table.RESULTS.read_text(encoding="utf-8"))["rows"]
    text = (ROOT / name).read_text(encoding="utf-8")
    assert table.put(text, table.tables(rows, language)) == text, "python -m benchmarks.beside.table"
