"""The lessons as pages: their languages, structure, width and size, and how they are turned."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from lesson_page import CHAPTERS, PAGES, ROOT, turn_to

AXE = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"
Open = Callable[..., Any]

SPOKEN = """lang => {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)
  const said = []
  while (walker.nextNode()) {
    const owner = walker.currentNode.parentElement
    if (owner.closest('script, style, math') || owner.closest('[lang]').lang !== lang) continue
    said.push(walker.currentNode.textContent)
  }
  for (const named of document.body.querySelectorAll('[aria-label], [title], [aria-valuetext]')) {
    if (named.closest('[lang]').lang !== lang) continue
    for (const name of ['aria-label', 'title', 'aria-valuetext']) said.push(named.getAttribute(name) ?? '')
  }
  return said.join('\\n')
}"""
FOREIGN = {
    "fr": r"\b(the|and|of|with|is|are|words?|which|from|by|for|what|that|this|weights?|value|key|query)\b",
    "en": r"\b(le|la|les|des|une|est|mots?|dans|avec|pour|qui|du|et(?! al\b)|poids|valeur|clé|requête|sur)\b",
}


@pytest.mark.parametrize("lang", ["fr", "en"])
def test_no_word_on_any_page_is_of_the_other_language(lesson: Open, lang: str) -> None:
    page = lesson("index", lang)
    for name in PAGES:
        turn_to(page, name, lang)
        said = page.evaluate(SPOKEN, lang)
        assert len(said) > 500, name
        assert "learn." not in said, name
        assert set(re.findall(FOREIGN[lang], said, flags=re.IGNORECASE)) == set(), name


@pytest.mark.parametrize(("lang", "theme"), [("fr", "light"), ("en", "dark")])
def test_axe_finds_nothing_on_any_page(lesson: Open, lang: str, theme: str) -> None:
    page = lesson("index", lang, theme)
    page.add_script_tag(content=AXE.read_text(encoding="utf-8"))
    for name in PAGES:
        turn_to(page, name, lang, theme)
        found = page.evaluate(
            "axe.run(document, {resultTypes: ['violations']}).then(said => said.violations)"
        )
        assert [(one["id"], one["nodes"][0]["html"][:120]) for one in found] == [], name


@pytest.mark.parametrize("lang", ["fr", "en"])
def test_no_page_is_wider_than_a_telephone(lesson: Open, lang: str) -> None:
    page = lesson("index", lang, width=400, height=800)
    for name in PAGES:
        turn_to(page, name, lang)
        assert page.evaluate("document.documentElement.scrollWidth") == 400, name
        cut = page.evaluate(
            "[...document.querySelectorAll('.formula')].filter(f => f.scrollWidth > f.clientWidth).length"
        )
        assert cut == 0, name


def test_every_chapter_has_a_figure_that_draws_itself(lesson: Open) -> None:
    page = lesson("index")
    for name in CHAPTERS:
        turn_to(page, name, "en")
        assert page.locator("figure .stage").count() >= 1, name
        for stage in page.locator("figure .stage").all():
            assert stage.locator("canvas, svg, table, .bars, .strip").count() >= 1, name
            assert stage.locator("button, input").count() >= 1, name


def test_the_file_is_small_enough_to_pass_on(lessons_file: Path) -> None:
    assert len(gzip.compress(lessons_file.read_bytes())) <= 400_000


# Turning pages.


def test_pages_turn_by_link_and_back_button_and_keep_language_and_theme(lesson: Open) -> None:
    page = lesson("index", "fr", "dark")
    page.get_by_role("link", name="Le masque").click()
    assert page.locator("h1").inner_text() == "Le masque"
    assert page.title().startswith("Le masque")
    page.locator("a[rel=next]").click()
    assert page.locator("h1").inner_text() == "Trois sortes d’attention"
    page.get_by_test_id("language-en").click()
    assert page.locator("h1").inner_text() == "Three kinds of attention"
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.go_back()
    page.wait_for_function("document.querySelector('h1').textContent === 'Le masque'")


def test_a_term_leads_to_its_place_in_the_glossary(lesson: Open) -> None:
    page = lesson(1)
    page.locator(".text a.term", has_text="query").first.click()
    assert page.locator("h1").inner_text() == "Glossary"
    top = page.locator("#query").bounding_box()["y"]
    assert 0 <= top < 300
    page.locator("#query + .uses a").first.click()
    assert page.locator(".folio").inner_text() == "Chapter 1"


def test_answers_open_by_keyboard(lesson: Open) -> None:
    page = lesson(3)
    question = page.locator("summary").first
    answer = page.locator("details").first.locator("p").first
    assert not answer.is_visible()
    question.focus()
    page.keyboard.press("Enter")
    assert answer.is_visible()


def test_on_paper_the_answers_are_open_the_controls_gone_and_the_page_light(lesson: Open) -> None:
    page = lesson(1, theme="dark")
    page.emulate_media(media="print")
    assert page.locator("details p").first.bounding_box()["height"] > 0
    assert not page.locator(".page-header").is_visible()
    assert not page.locator(".turn").is_visible()
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "light"


def test_on_paper_a_figure_says_what_was_chosen(lesson: Open) -> None:
    page = lesson(5)
    page.emulate_media(media="print")
    assert page.get_by_role("button", name="causal").is_visible()
    assert page.get_by_role("button", name="the sentence").is_visible()
    assert not page.get_by_role("button", name="BigBird").is_visible()
    assert page.evaluate("getComputedStyle(document.querySelector('.reach li')).printColorAdjust") == "exact"


def test_the_wheel_ships_what_the_lessons_need() -> None:
    shipped = files("regard").joinpath("lessons")
    assert shipped.joinpath("example.json").is_file()
    assert files("regard").joinpath("static", "learn.html").is_file()
