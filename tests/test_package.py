"""The package as a whole: its names, what an import costs, who may import whom, and what its wheel holds."""

from __future__ import annotations

import ast
import doctest
import importlib
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch

import regard

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "regard"
# What a package may import, besides itself, errors and words.
MAY_IMPORT = {
    "attend": set(),
    "nn": {"attend"},
    "models": {"nn", "attend"},
    "record": {"attend", "models"},
    "measure": {"record", "attend", "models"},
    "survey": {"measure", "record", "attend", "models"},
    "show": {"record", "attend"},
    "lessons": {"attend", "record", "nn", "show"},
    "serve": {"show", "record", "attend", "models", "lessons"},
    "cli": {"serve", "show", "record", "attend", "models", "measure", "survey", "lessons"},
}
ANYBODY = {"errors", "words", "version", "__init__"}


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def imported(path: Path) -> set[str]:
    """The subpackages of regard that a module imports, wherever in the file."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = (
            [node.module or ""]
            if isinstance(node, ast.ImportFrom) and not node.level
            else [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else []
        )
        found |= {name.split(".")[1] for name in names if name.startswith("regard.")}
        if isinstance(node, ast.ImportFrom) and node.module == "regard":
            found |= {alias.name for alias in node.names}
    return found


def in_a_fresh_process(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_public_names_are_these() -> None:
    assert set(regard.__all__) == {
        "__version__",
        "Attended",
        "Recorder",
        "Recording",
        "Subject",
        "additive_attention",
        "attention",
        "block_sparse_attention",
        "errors",
        "export",
        "heatmap",
        "linear_attention",
        "load",
        "masks",
        "merge",
        "nn",
        "online_softmax_attention",
        "open",
        "positions",
        "record",
        "scaled_dot_product_attention",
        "sliding_window_attention",
    }
    assert dir(regard) == sorted(regard.__all__)


@pytest.mark.parametrize("name", sorted(regard.__all__))
def test_every_public_name_is_there_and_documented(name: str) -> None:
    value = getattr(regard, name)
    assert value is not None
    assert name == "__version__" or value.__doc__


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'regard' has no attribute 'attend_to'"):
        _ = regard.attend_to


def test_record_is_the_function_whoever_imported_its_folder_first() -> None:
    in_a_fresh_process(
        "import regard.record.recording\nfrom regard.record.recording import Recording\n"
        "import regard\nassert regard.record.__name__ == 'record' and callable(regard.record)\n"
        "import regard.record.store\nassert callable(regard.record)\n"
        "assert regard.Recording is Recording"
    )


def test_importing_regard_imports_nothing_heavy() -> None:
    loaded = in_a_fresh_process("import sys, regard; print(*sys.modules)").split()
    assert not {"torch", "numpy", "transformers", "matplotlib", "fastapi", "uvicorn", "click"} & set(loaded)


@pytest.mark.parametrize(
    ("uses", "absent"),
    [
        (
            "regard.attention; regard.masks.causal(); regard.nn; regard.positions",
            "transformers matplotlib fastapi uvicorn click safetensors",
        ),
        (
            "regard.load; regard.record; regard.Recorder; regard.open; regard.heatmap; regard.export",
            "transformers matplotlib fastapi uvicorn click",
        ),
    ],
)
def test_what_a_name_does_not_need_is_not_imported(uses: str, absent: str) -> None:
    loaded = in_a_fresh_process(f"import sys, regard; {uses}; print(*sys.modules)").split()
    assert not set(absent.split()) & set(loaded)


def test_imports_point_one_way() -> None:
    wrong = []
    for path in modules():
        package = path.relative_to(SOURCE).parts[0]
        if package not in MAY_IMPORT:
            assert package in {f"{name}.py" for name in ANYBODY} | {"words"}, f"{package} is in no list"
            continue
        for other in imported(path) - MAY_IMPORT[package] - ANYBODY - {package}:
            if other in MAY_IMPORT:
                wrong.append(f"{path.relative_to(SOURCE)} imports {other}")
    assert wrong == []


def test_no_file_is_over_400_lines_and_every_module_says_what_it_is() -> None:
    sources = [path for folder in ("src", "tests", "benchmarks") for path in (ROOT / folder).rglob("*.py")]
    sources += [path for kind in ("*.ts", "*.svelte") for path in (ROOT / "web" / "src").rglob(kind)]
    assert len(sources) > 50
    long = {
        str(path.relative_to(ROOT)): n for path in sources if (n := len(path.read_text().splitlines())) > 400
    }
    assert long == {}
    silent = [
        str(path.relative_to(ROOT))
        for path in modules()
        if path.read_text().strip() and not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert silent == []


def test_nothing_in_the_library_prints_or_asserts() -> None:
    wrong = []
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Assert) or (
                isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
            ):
                wrong.append(f"{path.relative_to(SOURCE)}:{node.lineno}")
    assert wrong == []


def words(language: str) -> dict[str, str]:
    loaded: dict[str, str] = json.loads((SOURCE / "words" / f"{language}.json").read_text(encoding="utf-8"))
    return loaded


def test_both_languages_have_the_same_words_with_the_same_gaps() -> None:
    english, french = words("en"), words("fr")
    assert english.keys() == french.keys()
    for key, text in english.items():
        gaps = [sorted(re.findall(r"(?<!\{)\{(\w+)", said)) for said in (text, french[key])]
        assert gaps[0] == gaps[1], key
        assert text.strip(), key
        assert french[key].strip(), key


def test_every_word_that_the_code_says_is_in_the_catalogues_and_no_other() -> None:
    code = "\n".join(path.read_text(encoding="utf-8") for path in modules())
    said = set(re.findall(r"[\"']((?:cli|serve|figure|errors)\.[a-z_.]+[a-z_])[\"']", code))
    known = words("en").keys()
    made_of_parts = ("cli.models.", "cli.work.", "cli.count.")  # as in say(f"cli.models.{column}")
    built = {key for key in known if key.startswith(made_of_parts)}
    assert {key for key in said if not key.startswith("errors.py")} - known == set()
    unsaid = {key for key in known if key not in code} - built
    assert unsaid == set()


def test_a_french_sentence_has_french_spaces() -> None:
    for key, text in words("fr").items():
        assert not re.search(r"\w[;!?]", text.replace("://", "")), (key, text)
        assert not re.search(r"[a-zéèà]:(?:\s|$)", text), (key, text)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What a wheel built from this checkout holds; the front end as it is, not built anew."""
    folder = tmp_path_factory.mktemp("wheel")
    code = (
        "import os, sys; os.environ['REGARD_SKIP_WEB'] = '1'; import hatchling.build as build; "
        f"print(build.build_wheel({str(folder)!r}))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(folder / done.stdout.strip().splitlines()[-1]) as archive:
        return archive.namelist()


def test_the_wheel_contains_the_front_end_the_words_and_nothing_foreign(wheel: list[str]) -> None:
    expected = {f"regard/static/{page}.html" for page in ("view", "explore", "learn")}
    expected |= {"regard/words/en.json", "regard/words/fr.json", "regard/py.typed", "regard/cli/program.py"}
    assert expected <= set(wheel)
    assert all(name.startswith(("regard/", f"regard-{regard.__version__}.dist-info/")) for name in wheel)
    assert not [name for name in wheel if name.endswith((".pyc", ".map", ".ts", ".svelte"))]


def module_names() -> list[str]:
    return [
        ".".join(("regard", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")
        for path in modules()
    ]


@pytest.mark.parametrize("name", module_names())
def test_the_examples_in_the_documentation_run(name: str) -> None:
    module = importlib.import_module(name)
    extra = {"regard": regard, "torch": torch}
    failed, _ = doctest.testmod(module, extraglobs=extra, optionflags=doctest.ELLIPSIS)
    assert failed == 0
