"""The lessons: their Python prints what they say, both languages are built alike, and every link arrives."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from pathlib import Path

import pytest
import torch

import lesson_numbers
import regard
from regard.cli.program import run
from regard.errors import OutputError
from regard.lessons.folder import write_folder
from regard.nn import RotaryPositions, SinusoidalPositions

LESSONS = Path(str(files("regard").joinpath("lessons")))
LANGUAGES = ("fr", "en")
TEXTS = {
    lang: {p.stem: p.read_text("utf-8") for p in sorted((LESSONS / lang).glob("*.md"))} for lang in LANGUAGES
}
CHAPTERS = [name for name in TEXTS["fr"] if name[:2].isdigit()]
ALL = [(language, name) for language in LANGUAGES for name in TEXTS[language]]
NUMBERED = [(language, name) for language in LANGUAGES for name in CHAPTERS]
PYTHON = re.compile(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", re.DOTALL)


def prose(text: str) -> str:
    """The words of the page's language: no code, mathematics, link targets, tags or foreign words."""
    hidden = (
        r"```.*?```|`[^`\n]*`|\$\$.*?\$\$|\$[^$\n]+\$|\]\([^)\s]*\)|<[^>]*>"
        r"|^---$|^title: |^idea: |\{#[\w-]+\}|_[^_\n]+_"
    )
    return re.sub(hidden, "·", text, flags=re.DOTALL | re.MULTILINE)


# The Python of the chapters.


@pytest.mark.parametrize(("language", "name"), NUMBERED)
def test_the_python_of_a_chapter_prints_what_stands_below_it(
    language: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ((code, printed),) = PYTHON.findall(TEXTS[language][name])
    exec(compile(code, f"{language}/{name}", "exec"), {})
    assert printed.strip()
    assert capsys.readouterr().out.split() == printed.split()


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_first_chapter_computes_with_the_explorer_s_vectors(language: str) -> None:
    example = json.loads((LESSONS / "example.json").read_text("utf-8"))
    code = PYTHON.findall(TEXTS[language][CHAPTERS[0]])[0][0]
    rows = [[float(x) for x in row] for row in re.findall(r"\[(-?[\d.]+), (-?[\d.]+)\]", code)]
    roles = example["roles"][language]
    expected = [example["vectors"][role][kind] for kind in ("key", "value") for role in roles]
    assert rows == [*expected, example["vectors"][example["chosen"]]["query"]]


# Two languages, one structure.


def structure(text: str) -> list[str]:
    """Figures, headings, answers, formulas, code, notes and named things, in order."""
    body = text.split("---\n", 2)[2]
    marks = (
        r"\]\((?:term|source|page|figure):[\w-]+\)|^#+ |^<details>|^\$\$|^```\w*|^> |^- |^\d\. |\{#[\w-]+\}"
    )
    return re.findall(marks, body, flags=re.MULTILINE)


def test_both_languages_have_the_same_files() -> None:
    assert list(TEXTS["fr"]) == list(TEXTS["en"])
    assert len(CHAPTERS) == 10
    assert {"index", "glossary", "sources"} < set(TEXTS["fr"])


@pytest.mark.parametrize("name", [name for name in TEXTS["fr"] if name != "glossary"])
def test_a_page_is_built_alike_in_both_languages(name: str) -> None:
    french, english = (structure(TEXTS[language][name]) for language in LANGUAGES)
    assert sorted(french) == sorted(english)
    assert [mark for mark in french if "](" not in mark] == [mark for mark in english if "](" not in mark]


@pytest.mark.parametrize(("language", "name"), NUMBERED)
def test_a_chapter_has_a_figure_three_questions_with_answers_and_one_piece_of_python(
    language: str, name: str
) -> None:
    text = TEXTS[language][name]
    figures = re.findall(r"^!\[.+\]\(figure:([\w-]+)\)$", text, flags=re.MULTILINE)
    assert 1 <= len(figures) <= 2
    known = (LESSONS.parents[2] / "web/src/views/learn/figures.ts").read_text("utf-8")
    assert all(re.search(rf"^  '?{figure}'?: ", known, flags=re.MULTILINE) for figure in figures)
    answers = re.findall(r"<details>\n<summary>(.+?)</summary>\n\n(.+?)\n\n</details>", text, flags=re.DOTALL)
    assert len(answers) == 3
    assert len(PYTHON.findall(text)) == 1
    words = len(re.findall(r"\w+", prose(text)))
    assert 250 < words < 900, "a chapter is short"


# Glossary, sources, links.


def glossary(language: str) -> dict[str, tuple[str, str]]:
    found = re.findall(r"^## (.+?) · _(.+?)_ \{#([\w-]+)\}$", TEXTS[language]["glossary"], flags=re.MULTILINE)
    return {name: (here, there) for here, there, name in found}


def test_the_glossaries_are_each_other_s_mirror() -> None:
    french, english = glossary("fr"), glossary("en")
    assert {name: (there, here) for name, (here, there) in french.items()} == english
    assert len(french) == TEXTS["fr"]["glossary"].count("\n## ")


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(("kind", "page"), [("term", "glossary"), ("source", "sources")])
def test_every_entry_is_linked_from_a_chapter_and_every_link_arrives(
    language: str, kind: str, page: str
) -> None:
    entries = set(re.findall(r"\{#([\w-]+)\}", TEXTS[language][page]))
    links = {
        link for text in TEXTS[language].values() for link in re.findall(rf"\]\({kind}:([\w-]+)\)", text)
    }
    chapters = {
        link for name in CHAPTERS for link in re.findall(rf"\]\({kind}:([\w-]+)\)", TEXTS[language][name])
    }
    assert links <= entries
    assert entries == chapters


@pytest.mark.parametrize(("language", "name"), ALL)
def test_links_between_chapters_arrive(language: str, name: str) -> None:
    assert set(re.findall(r"\]\(page:([\w-]+)\)", TEXTS[language][name])) <= set(TEXTS[language])


# Typography.


@pytest.mark.parametrize(("language", "name"), ALL)
def test_apostrophes_and_quotation_marks_are_set(language: str, name: str) -> None:
    text = prose(TEXTS[language][name])
    assert not re.findall(r"\w*['\"]\w*", text)


@pytest.mark.parametrize("name", TEXTS["fr"])
def test_french_punctuation_has_its_unbreakable_space(name: str) -> None:
    text = prose(TEXTS["fr"][name])
    assert not re.findall(r".{0,20}[^\u00a0\u202f\W][;?!»].{0,5}|.{0,20} [:;?!»%](?!\w).{0,5}|« .{0,9}", text)


@pytest.mark.parametrize("name", TEXTS["en"])
def test_english_writes_percent_and_pairs_of_numbers_its_own_way(name: str) -> None:
    text = prose(TEXTS["en"][name])
    assert not re.findall(r".{0,9}\s%|\(\d+; \d+\)", text)


@pytest.mark.parametrize(("language", "name"), NUMBERED)
def test_captions_do_not_depend_on_where_a_picture_stands(language: str, name: str) -> None:
    """On a telephone nothing is to the right of anything; only lists of words keep their side."""
    captions = " ".join(re.findall(r"^!\[(.+)\]\(figure:", TEXTS[language][name], flags=re.MULTILINE))
    assert not re.findall(r"\b(?:À (?:gauche|droite)|Left:|Right:|on the right|Below:)", captions)


# The offline folder and the command.


def test_the_folder_holds_every_page_once_and_every_link_in_it_arrives(tmp_path: Path) -> None:
    written = write_folder(tmp_path / "lessons")
    names = {path.relative_to(tmp_path / "lessons").as_posix() for path in written}
    assert names == {"index.html", "lessons.css", "lessons.js"} | {
        f"{language}/{name}.html" for language, name in ALL
    }
    for path in written:
        if path.suffix != ".html":
            continue
        text = path.read_text("utf-8")
        assert "page:" not in re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
        for link in re.findall(
            r'(?:href|src)="([^"]+)"', re.sub(r"<script type=.*?</script>", "", text, flags=re.DOTALL)
        ):
            if link.startswith(("data:", "https://arxiv.org/abs/", "https://huggingface.co/")):
                continue
            target, _, anchor = link.partition("#")
            assert (path.parent / target).is_file(), link
            assert not anchor or f'id="{anchor}"' in (path.parent / target).read_text("utf-8"), link


def test_a_page_of_the_folder_is_in_its_language_and_carries_its_text_alone(tmp_path: Path) -> None:
    write_folder(tmp_path)
    page = (tmp_path / "fr" / f"{CHAPTERS[2]}.html").read_text("utf-8")
    assert '<html lang="fr">' in page
    assert "Pourquoi √d</h1>" in page
    book = json.loads(re.findall(r'id="regard-lessons">(.*?)</script>', page, flags=re.DOTALL)[0])
    texts = [one["html"] for chapters in book["languages"].values() for one in chapters]
    assert sum(text is not None for text in texts) == 1


def test_a_folder_that_cannot_be_made_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=r"file.* cannot be written"):
        write_folder(tmp_path / "file")


def test_the_command_writes_the_folder_and_says_where_it_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["learn", "-o", str(tmp_path / "lessons")]) == 0
    assert capsys.readouterr().out.startswith(str(tmp_path / "lessons" / "index.html"))


# The numbers of the figures.


def test_the_golden_numbers_are_those_of_the_definitions() -> None:
    kept = json.loads(lesson_numbers.GOLDEN.read_text("utf-8"))
    assert _flat(kept) == pytest.approx(_flat(json.loads(json.dumps(lesson_numbers.numbers()))), abs=1e-12)


def _flat(value: object) -> dict[str, object]:
    """Every leaf by its path, numbers as numbers."""
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        return {f"{key}/{path}": leaf for key, one in items for path, leaf in _flat(one).items()}
    return {"": value if isinstance(value, int | float) and not isinstance(value, bool) else hash(str(value))}


def test_regard_s_positions_and_attention_are_those_of_the_figure() -> None:
    x = torch.tensor(lesson_numbers.positions()["vectors"], dtype=torch.float64)
    waves = SinusoidalPositions(lesson_numbers.CHANNELS)(torch.arange(len(x)))
    assert torch.allclose(waves.double(), lesson_numbers.waves(len(x)), atol=1e-6)
    turned = RotaryPositions(lesson_numbers.CHANNELS)(x[None, None])
    assert torch.allclose(turned[0, 0], lesson_numbers.turned(x), atol=1e-5)
    plain = regard.attention(x[None, None], x[None, None], x[None, None])[0, 0]
    assert torch.allclose(plain, lesson_numbers.attended(x, "none"), atol=1e-12)


def test_regard_s_linear_attention_is_that_of_the_figure() -> None:
    for given in lesson_numbers.linear():
        query, keys = (torch.tensor(given[name], dtype=torch.float64) for name in ("query", "keys"))
        weights = regard.linear_attention(
            query[None, None, None], keys[None, None], torch.eye(7).double()[None, None]
        )
        assert torch.allclose(
            weights[0, 0, 0], torch.tensor(given["weights"], dtype=torch.float64), atol=1e-6
        )


def test_the_recorded_heads_are_rows_that_sum_to_one() -> None:
    weights, kept = lesson_numbers.recorded()
    assert torch.allclose(weights.sum(-1), torch.ones(()).double(), atol=len(kept["tokens"]) * 0.5 / 255)
    assert kept["provenance"]["max_error"] < 1e-4
    assert [kept["tokens"][i] for i, _ in kept["adjective_noun"]] == ["black", "red", "old", "black"]
