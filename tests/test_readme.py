"""What README says works: its Python runs, its commands are ones, and both languages say the same."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from regard.cli.program import program

ROOT = Path(__file__).parents[1]
NAMES = ("README.md", "README.fr.md")
TEXTS = {name: (ROOT / name).read_text(encoding="utf-8") for name in NAMES}
PYTHON = {name: re.findall(r"^```python\n(.*?)^```", TEXTS[name], re.DOTALL | re.MULTILINE) for name in NAMES}
COMMANDS = [
    (name, command.strip())
    for name in NAMES
    for line in re.findall(r"^regard .*", TEXTS[name], re.MULTILINE)
    for command in line.split(" # ")[0].split(" ; ")
]


def without_comments(code: str) -> list[str]:
    return [line.split(" # ")[0].rstrip() for line in code.splitlines()]


@pytest.mark.parametrize(("name", "number"), [(name, i) for name in NAMES for i in range(len(PYTHON[name]))])
def test_the_python_runs(
    name: str, number: int, minilm: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("regard.load", lambda _: minilm)
    exec(compile(PYTHON[name][number], f"{name}, block {number}", "exec"), {})
    named = {
        file
        for call in re.findall(r"\w+\((.*)\)", PYTHON[name][number])
        for file in re.findall(r"fox\.\w+", call)
    }
    assert {path.name for path in tmp_path.iterdir()} == named


def test_both_languages_run_the_same_python() -> None:
    english, french = (list(map(without_comments, PYTHON[name])) for name in NAMES)
    assert english == french
    assert len(english) == 3


@pytest.mark.parametrize(("name", "line"), COMMANDS)
def test_a_command_is_one(name: str, line: str) -> None:
    _, command, *arguments = shlex.split(line)
    found = program().get_command(program().make_context("regard", [command]), command)
    assert found is not None
    found.make_context(command, arguments)  # parsed, not run


def test_both_languages_name_the_same_commands_and_options() -> None:
    asked = [
        [(shlex.split(line)[1], re.findall(r"--?[a-z]+", line)) for name, line in COMMANDS if name == one]
        for one in NAMES
    ]
    assert asked[0] == asked[1]
    assert len(asked[0]) > 10
