"""The lessons in a real Chromium, opened from files: every page in both languages, every figure by hand."""

from __future__ import annotations

import gzip
import os
import re
import shutil
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

playwright = pytest.importorskip("playwright.sync_api", exc_type=ImportError)
pytestmark = pytest.mark.browser

ROOT = Path(__file__).parents[2]
AXE = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"
PAGES = sorted(path.stem for path in (ROOT / "src/regard/lessons/fr").glob("*.md"))
CHAPTERS = [name for name in PAGES if name[:2].isdigit()]
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    path = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)))
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All lessons in one file, as `regard learn` serves it."""
    from regard.show.pages import write_page

    return write_page("learn", tmp_path_factory.mktemp("lessons") / "learn.html")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same as `regard learn -o` writes it."""
    from regard.lessons.folder import write_folder

    return write_folder(tmp_path_factory.mktemp("folder"))[0].parent


@pytest.fixture
def opened(chromium: Any) -> Iterator[Open]:
    """Open an address. A request to anywhere or an error in the page fails the test."""
    faults: list[str] = []
    contexts = []

    def go(address: str, *, width: int = 1280, height: int = 900, **options: Any) -> Any:
        context = chromium.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda said: faults.append(said.text) if said.type == "error" else None)
        page.on("request", lambda asked: None if asked.url.startswith("file:") else faults.append(asked.url))
        page.goto(address)
        return page

    yield go
    for context in contexts:
        context.close()
    assert faults == []


@pytest.fixture
def chapter(opened: Open, book: Path) -> Open:
    """Open a page of the book by its number, or by its name."""

    def go(which: int | str, lang: str = "en", theme: str = "light", **options: Any) -> Any:
        name = CHAPTERS[which - 1] if isinstance(which, int) else which
        page = opened(f"{book.as_uri()}#page={name}&lang={lang}&theme={theme}", **options)
        page.locator("h1").wait_for()
        return page

    return go


def turn_to(page: Any, name: str, lang: str, theme: str = "light") -> None:
    """Go to another page without loading the file again."""
    page.evaluate("hash => { location.hash = hash }", f"page={name}&lang={lang}&theme={theme}")
    page.wait_for_function("lang => document.documentElement.lang === lang", arg=lang)
    page.wait_for_timeout(60)


def bars(page: Any, at: int = 0) -> dict[str, float]:
    rows = page.locator(".bars").nth(at).locator("li").all_inner_texts()
    found = [row.split("\n") for row in rows]
    return {f"{i} {row[0]}": float(row[-1].replace(",", ".")) for i, row in enumerate(found)}


def loudest(page: Any) -> str:
    weights = bars(page)
    return max(weights, key=lambda name: weights[name]).split(" ", 1)[1]


# Every page.

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
def test_no_word_on_any_page_is_of_the_other_language(chapter: Open, lang: str) -> None:
    page = chapter("index", lang)
    for name in PAGES:
        turn_to(page, name, lang)
        said = page.evaluate(SPOKEN, lang)
        assert len(said) > 500, name
        assert "learn." not in said, name
        assert set(re.findall(FOREIGN[lang], said, flags=re.IGNORECASE)) == set(), name


@pytest.mark.parametrize(("lang", "theme"), [("fr", "light"), ("en", "dark")])
def test_axe_finds_nothing_on_any_page(chapter: Open, lang: str, theme: str) -> None:
    page = chapter("index", lang, theme)
    page.add_script_tag(content=AXE.read_text(encoding="utf-8"))
    for name in PAGES:
        turn_to(page, name, lang, theme)
        found = page.evaluate(
            "axe.run(document, {resultTypes: ['violations']}).then(said => said.violations)"
        )
        assert [(one["id"], one["nodes"][0]["html"][:120]) for one in found] == [], name


@pytest.mark.parametrize("lang", ["fr", "en"])
def test_no_page_is_wider_than_a_telephone(chapter: Open, lang: str) -> None:
    page = chapter("index", lang, width=400, height=800)
    for name in PAGES:
        turn_to(page, name, lang)
        assert page.evaluate("document.documentElement.scrollWidth") == 400, name
        cut = page.evaluate(
            "[...document.querySelectorAll('.formula')].filter(f => f.scrollWidth > f.clientWidth).length"
        )
        assert cut == 0, name


def test_every_chapter_has_a_figure_that_draws_itself(chapter: Open) -> None:
    page = chapter("index")
    for name in CHAPTERS:
        turn_to(page, name, "en")
        assert page.locator("figure .stage").count() >= 1, name
        for stage in page.locator("figure .stage").all():
            assert stage.locator("canvas, svg, table, .bars, .strip").count() >= 1, name
            assert stage.locator("button, input").count() >= 1, name


def test_the_file_is_small_enough_to_pass_on(book: Path) -> None:
    assert len(gzip.compress(book.read_bytes())) <= 400_000


# Turning pages.


def test_pages_turn_by_link_and_back_button_and_keep_language_and_theme(chapter: Open) -> None:
    page = chapter("index", "fr", "dark")
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


def test_a_term_leads_to_its_place_in_the_glossary(chapter: Open) -> None:
    page = chapter(1)
    page.locator(".text a.term", has_text="query").first.click()
    assert page.locator("h1").inner_text() == "Glossary"
    top = page.locator("#query").bounding_box()["y"]
    assert 0 <= top < 300
    page.locator("#query + .uses a").first.click()
    assert page.locator(".folio").inner_text() == "Chapter 1"


def test_answers_open_by_keyboard(chapter: Open) -> None:
    page = chapter(3)
    question = page.locator("summary").first
    answer = page.locator("details").first.locator("p").first
    assert not answer.is_visible()
    question.focus()
    page.keyboard.press("Enter")
    assert answer.is_visible()


# The figures, by hand.


def test_chapter_1_turning_the_query_changes_who_answers(chapter: Open) -> None:
    page = chapter(1)
    assert loudest(page) == "black"
    plane = page.locator("figure svg.grab")
    plane.scroll_into_view_if_needed()
    box = plane.bounding_box()
    x, y, side = box["x"], box["y"], box["width"]
    page.mouse.move(x + side * 0.75, y + side * 0.5)
    page.mouse.down()
    page.mouse.move(x + side * 0.36, y + side * 0.26, steps=5)
    page.mouse.up()
    assert loudest(page) == "rug"
    page.get_by_role("button", name="Reset").click()
    assert loudest(page) == "black"


def test_chapter_1_the_arrow_keys_turn_and_lengthen(chapter: Open) -> None:
    page = chapter(1)
    before = bars(page)["1 black"]
    page.get_by_role("slider").focus()
    for _ in range(6):
        page.keyboard.press("ArrowUp")
    assert bars(page)["1 black"] > before
    for _ in range(30):
        page.keyboard.press("ArrowLeft")
    assert loudest(page) != "black"


def test_chapter_1_a_finger_moves_the_arrow(chapter: Open) -> None:
    page = chapter(1, has_touch=True, is_mobile=True, width=400, height=800)
    plane = page.locator("figure svg.grab")
    plane.scroll_into_view_if_needed()
    box = plane.bounding_box()
    page.touchscreen.tap(box["x"] + box["width"] * 0.08, box["y"] + box["height"] * 0.5)
    assert loudest(page) == "sleeps"


def test_chapter_2_every_number_can_be_changed(chapter: Open) -> None:
    page = chapter(2)
    page.get_by_role("button", name="4 Weighted sum").click()
    before = page.locator("tfoot strong").inner_text()
    page.get_by_label("value, black, entry 1").fill("9")
    assert page.locator("tfoot strong").inner_text() != before
    page.get_by_role("button", name="1 Scores").click()
    page.get_by_label("key, sleeps, entry 1").fill("2")
    page.get_by_role("button", name="3 Softmax").click()
    assert page.locator("tbody tr").nth(3).inner_text().endswith("0.278")


def test_chapter_3_longer_vectors_saturate_the_undivided_softmax(chapter: Open) -> None:
    page = chapter(3)
    slider = page.get_by_role("slider")
    slider.press("Home")
    assert bars(page, 0) == bars(page, 1)
    slider.press("End")
    assert max(bars(page, 0).values()) > 0.7
    assert max(bars(page, 1).values()) < 0.5


def test_chapter_4_both_limits_of_the_temperature_are_reached(chapter: Open) -> None:
    page = chapter(4)
    slider = page.get_by_role("slider")
    slider.press("End")
    assert set(bars(page).values()) == {0.14}
    assert "as if 7.0 of 7 words" in page.locator(".said").inner_text()
    slider.press("Home")
    assert sorted(bars(page).values()) == [0, 0, 0, 0, 0, 0, 1]


def test_chapter_5_masks_count_their_cells_and_say_what_is_reached(chapter: Open) -> None:
    page = chapter(5)
    assert "28 of 49" in page.locator(".said").inner_text()
    page.get_by_role("button", name="16", exact=True).click()
    page.get_by_role("button", name="window", exact=True).click()
    page.get_by_role("slider", name="Layers").press("End")
    page.get_by_role("slider", name="Word that asks").press("End")
    assert page.locator(".reach li").first.inner_text().split() == ["1", "8"]
    page.get_by_role("button", name="window + global").click()
    assert page.locator(".reach li").nth(5).inner_text().split() == ["6", "2"]


def test_chapter_5_a_click_on_the_matrix_chooses_who_asks(chapter: Open) -> None:
    page = chapter(5)
    page.locator("figure canvas").click(position={"x": 20, "y": 8})
    assert page.locator(".rows button[aria-pressed=true]").inner_text() == "the"
    assert page.locator(".reach li.no").count() == 6


def test_chapter_6_the_kind_says_who_asks_and_who_answers(chapter: Open) -> None:
    page = chapter(6)
    assert page.locator(".said").inner_text().startswith("“cat” looks most at “chat”")
    page.get_by_role("button", name="Causal self-attention (decoder)").click()
    page.locator(".asks button").first.click()
    assert page.locator(".said").inner_text() == "“the” looks most at “the”: 100%."


def test_chapter_7_a_habit_finds_its_head(chapter: Open) -> None:
    page = chapter(7)
    assert page.locator(".head", has_text="layer 0, head 2: score 1.00").is_visible()
    page.get_by_role("button", name="the noun, from its adjective").click()
    assert page.locator(".head", has_text="layer 2, head 8").is_visible()
    page.get_by_role("button", name=re.compile("^layer 5, head 11:")).click()
    assert page.locator(".head", has_text="layer 5, head 11").is_visible()


def test_chapter_8_a_shuffle_moves_the_outputs_and_changes_none_without_positions(chapter: Open) -> None:
    page = chapter(8)
    page.get_by_role("button", name="Shuffle").click()
    assert set(page.locator(".shift").all_inner_texts()) == {"="}
    page.get_by_role("button", name="sinusoidal").click()
    assert "=" not in page.locator(".shift").all_inner_texts()
    page.get_by_role("button", name="Put back in order").click()
    assert set(page.locator(".shift").all_inner_texts()) == {"="}


def test_chapter_9_says_where_its_times_come_from_or_that_there_are_none(chapter: Open) -> None:
    said = chapter(9).locator("section .said").inner_text()
    assert "Measured on 20" in said or "holds no measured times" in said


def test_chapter_10_attention_reads_the_text_and_memory_what_was_read_before(chapter: Open) -> None:
    page = chapter(10)
    assert loudest(page) == "felix"
    page.get_by_label("attention (this text)").uncheck()
    assert loudest(page) == "sleeps"
    page.get_by_label("residual").uncheck()
    assert len({round(value, 2) for value in bars(page).values()}) == 1
    page.get_by_label("residual").check()
    page.get_by_label("attention (this text)").check()
    page.get_by_label("Your text").fill("moon shines . moon")
    assert loudest(page) == "shines"
    page.get_by_role("button", name="Add the likeliest word").click()
    assert page.get_by_label("Your text").input_value() == "moon shines . moon shines"


# The offline folder.


def test_the_folder_opens_from_files_and_its_figures_compute(opened: Open, folder: Path) -> None:
    page = opened((folder / "index.html").as_uri())
    page.get_by_role("link", name="La température").click()
    page.wait_for_selector("figure .stage")
    assert page.locator("h1").inner_text() == "La température"
    page.get_by_role("slider").press("Home")
    assert max(bars(page).values()) == 1
    page.locator("a[rel=next]").click()
    page.wait_for_selector("figure canvas")
    assert page.url.endswith("/fr/05-mask.html")


def test_the_other_language_is_the_other_file_and_back_returns(opened: Open, folder: Path) -> None:
    page = opened((folder / "fr" / f"{CHAPTERS[0]}.html").as_uri(), locale="en-GB")
    page.wait_for_selector("figure .stage")
    page.get_by_test_id("theme-dark").click()
    page.get_by_test_id("language-en").click()
    page.wait_for_url(re.compile("/en/01-ask-and-answer.html"))
    page.wait_for_selector("figure .stage")
    assert page.locator("h1").inner_text() == "Asking and answering"
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.go_back()
    page.wait_for_url(re.compile("/fr/01-ask-and-answer.html"))
    page.wait_for_function("document.querySelector('h1').textContent === 'Demander et répondre'")


def test_a_page_of_the_folder_can_be_read_without_scripts(opened: Open, folder: Path) -> None:
    page = opened((folder / "en" / f"{CHAPTERS[2]}.html").as_uri(), java_script_enabled=False)
    assert page.locator("h1").inner_text() == "Why √d"
    assert page.locator("math").count() > 5
    assert page.locator("details").count() == 3


def test_on_paper_the_answers_are_open_and_the_controls_gone(opened: Open, folder: Path) -> None:
    page = opened((folder / "en" / f"{CHAPTERS[0]}.html").as_uri())
    page.wait_for_selector("figure .stage")
    page.emulate_media(media="print")
    assert page.locator("details p").first.bounding_box()["height"] > 0
    assert not page.locator(".page-header").is_visible()
    assert not page.locator(".turn").is_visible()


def test_the_wheel_ships_what_the_lessons_need() -> None:
    shipped = files("regard").joinpath("lessons")
    assert shipped.joinpath("example.json").is_file()
    assert files("regard").joinpath("static", "learn.html").is_file()
