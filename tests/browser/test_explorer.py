"""The explorer in a real Chromium, opened from a file: by mouse, by finger and by keyboard."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

playwright = pytest.importorskip("playwright.sync_api", exc_type=ImportError)

ROOT = Path(__file__).parents[2]
WORDS = {
    lang: json.loads((ROOT / f"web/src/i18n/{lang}.json").read_text(encoding="utf-8"))
    for lang in ("fr", "en")
}
Open = Callable[..., Any]


@pytest.fixture
def explorer(visit: Open, explorer_file: Path) -> Open:
    """Open the file with a fragment."""
    return lambda fragment="lang=fr", **options: visit(
        f"{explorer_file.as_uri()}#{fragment}", ready="query", **options
    )


@pytest.fixture(scope="module")
def explorer_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from regard.show.pages import write_page

    return write_page("explore", tmp_path_factory.mktemp("explorer") / "explorer.html")


# Reading the page.


def weights(page: Any) -> list[float]:
    """The bars of the word that asks; a forbidden one counts as 0."""
    said = page.locator("[data-testid^=weight-]").all_inner_texts()
    return [float(text.replace(",", ".") or 0) for text in said]


def winner(page: Any) -> str:
    row = weights(page)
    return page.get_by_test_id(f"word-{row.index(max(row))}").locator(".text").inner_text()


def entropy(page: Any) -> float:
    found = re.search(r"\d+[.,]\d+", page.locator(".entropy").inner_text())
    assert found
    return float(found[0].replace(",", "."))


def centre(page: Any, selector: str) -> tuple[float, float]:
    box = page.locator(selector).bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


TIP, PLANE = "[data-testid=query] .grip", "section.keys svg"


def plane_point(page: Any, x: float, y: float, plane: str = PLANE) -> tuple[float, float]:
    """Pixels of a point of the keys panel, whose square reaches from −3.6 to 3.6."""
    box = page.locator(plane).bounding_box()
    return box["x"] + box["width"] * (0.5 + x / 7.2), box["y"] + box["height"] * (0.5 - y / 7.2)


def drag(page: Any, start: tuple[float, float], *way: tuple[float, float]) -> None:
    page.mouse.move(*start)
    page.mouse.down()
    for point in way:
        page.mouse.move(*point, steps=4)
    page.mouse.up()


# The figures of the example.


@pytest.mark.parametrize(("lang", "asks", "answers"), [("fr", "chat", "noir"), ("en", "cat", "black")])
def test_it_opens_with_the_given_figures(explorer: Open, lang: str, asks: str, answers: str) -> None:
    page = explorer(f"lang={lang}")
    said = page.get_by_test_id("answers").inner_text().replace("\u202f", " ").replace("\xa0", " ")
    gap = " " if lang == "fr" else ""
    verb = "demande :" if lang == "fr" else "asks:"
    assert said.startswith(f"{asks} {verb} {answers} 58{gap}%, {asks} 24{gap}%")
    assert page.get_by_test_id("sum").inner_text().replace("\xa0", " ").startswith(f"o({asks}) ≈ 0")


def test_it_is_one_small_file(explorer_file: Path) -> None:
    assert explorer_file.stat().st_size <= 600_000
    assert "connect-src 'none'" in explorer_file.read_text(encoding="utf-8")


# Mouse, finger, keyboard.


def test_mouse_turning_the_query_changes_who_answers(explorer: Open) -> None:
    page = explorer()
    assert winner(page) == "noir"
    drag(page, centre(page, TIP), plane_point(page, 1, 1.2), plane_point(page, -0.8, 1.5))
    assert winner(page) == "tapis"
    drag(page, centre(page, TIP), plane_point(page, -1.5, -0.2))
    assert winner(page) == "dort"


def test_mouse_lengthening_the_query_sharpens(explorer: Open) -> None:
    page = explorer()
    before = entropy(page)
    drag(page, centre(page, TIP), plane_point(page, 3.1, -0.2))
    assert winner(page) == "noir"
    assert entropy(page) < before


def test_pointing_at_an_empty_place_sends_the_query_there(explorer: Open) -> None:
    page = explorer()
    page.mouse.click(*plane_point(page, -1.2, -0.1))
    assert winner(page) == "dort"


def finger(page: Any, *way: tuple[float, float]) -> None:
    """Put a finger down, move it along the way, lift it."""
    touches = page.context.new_cdp_session(page)
    for i, (x, y) in enumerate(way):
        kind = "touchMove" if i else "touchStart"
        touches.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [{"x": x, "y": y}]})
        page.wait_for_timeout(16)
    touches.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    page.wait_for_timeout(100)


PHONE = {"width": 400, "height": 800, "has_touch": True, "is_mobile": True}


def test_a_finger_turns_the_query_and_the_page_stays(explorer: Open) -> None:
    page = explorer(**PHONE)
    finger(page, centre(page, TIP), *(plane_point(page, -0.8, y) for y in (0, 0.3, 0.8, 1.3, 1.5)))
    assert winner(page) == "tapis"
    assert page.evaluate("scrollY") == 0


def test_a_finger_beside_the_handles_scrolls_the_page(explorer: Open) -> None:
    page = explorer(**PHONE)
    finger(page, *(plane_point(page, -2, y / 4) for y in range(-8, 12)))
    assert page.evaluate("scrollY") > 100
    assert winner(page) == "noir"


def test_a_tap_sends_the_query_there(explorer: Open) -> None:
    page = explorer(**PHONE)
    page.touchscreen.tap(*plane_point(page, -1.2, -0.1))
    assert winner(page) == "dort"


def test_keyboard_alone_walks_turns_and_lengthens(explorer: Open) -> None:
    page = explorer()
    page.get_by_test_id("word-0").focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Shift+Tab")
    assert page.get_by_test_id("word-1").get_attribute("aria-pressed") == "true"
    before = entropy(page)
    for _ in range(5):
        page.keyboard.press("ArrowUp")
    assert entropy(page) < before
    for _ in range(22):
        page.keyboard.press("ArrowLeft")
    assert winner(page) == "chat"
    page.get_by_test_id("query").focus()
    for _ in range(40):
        page.keyboard.press("ArrowLeft")
    assert winner(page) == "dort"


def test_a_screen_reader_hears_who_answers(explorer: Open) -> None:
    page = explorer("lang=en")
    page.get_by_test_id("word-3").click()
    heard = page.get_by_test_id("announced")
    playwright.expect(heard).to_have_text(re.compile(r"^sleeps asks: cat 58\s?%, rug 24\s?%"))
    assert heard.get_attribute("aria-live") == "polite"
    handle = page.get_by_test_id("query")
    assert handle.get_attribute("role") == "slider"
    assert "sleeps asks: cat 58" in handle.get_attribute("aria-valuetext")


def test_keys_and_values_move_too_and_twins_move_together(explorer: Open) -> None:
    page = explorer()
    before = page.get_by_test_id("sum").inner_text()
    drag(
        page,
        plane_point(page, 0.4, 0.2, "section.values svg"),
        plane_point(page, 2, -3, "section.values svg"),
    )
    assert page.get_by_test_id("sum").inner_text() != before
    drag(page, plane_point(page, 0.4, -0.8), plane_point(page, 3, 0.3))
    row = weights(page)
    assert row[0] == row[5] == max(row)
    point = page.locator("section.keys .spot").nth(1)
    point.focus()
    label = point.get_attribute("aria-label")
    page.keyboard.press("ArrowRight")
    assert point.get_attribute("aria-label") != label


# The other ways to choose, and the switches.


def test_a_bar_and_a_row_choose_the_word_that_asks(explorer: Open) -> None:
    page = explorer()
    page.locator(".bar").nth(3).click()
    assert page.get_by_test_id("word-3").get_attribute("aria-pressed") == "true"
    canvas = page.locator("section.weights canvas")
    box = canvas.bounding_box()
    canvas.click(position={"x": box["width"] * 0.4, "y": box["height"] * 4.5 / 7})
    assert page.get_by_test_id("word-4").get_attribute("aria-pressed") == "true"


def test_forbidden_cells_are_empty_not_zero(explorer: Open) -> None:
    page = explorer("lang=fr&causal=on")
    alpha = """(canvas) => [[0, 0], [0, 6], [6, 0], [3, 4]].map(([i, j]) => {
        const [x, y] = [((j + 0.2) * canvas.width) / 7, ((i + 0.2) * canvas.height) / 7]
        return canvas.getContext('2d').getImageData(x, y, 1, 1).data[3]
    })"""
    assert page.locator("section.weights canvas").evaluate(alpha) == [255, 0, 255, 0]
    assert page.locator("[data-testid^=weight-]").all_inner_texts()[2:] == [""] * 5
    assert sum(weights(page)) == pytest.approx(1, abs=0.011)


def test_temperature_reaches_both_limits(explorer: Open) -> None:
    page = explorer()
    slider = page.locator("#temperature")
    slider.focus()
    page.keyboard.press("Home")
    assert weights(page) == [0, 0, 1, 0, 0, 0, 0]
    page.keyboard.press("End")
    assert weights(page) == [0.14] * 7
    page.get_by_role("button", name="T = 1", exact=True).click()
    assert weights(page)[1:3] == [0.24, 0.58]


def test_positions_part_the_two_articles(explorer: Open) -> None:
    page = explorer("lang=fr&word=0")
    assert weights(page)[0] == weights(page)[5]
    page.get_by_role("button", name="Rotatives").click()
    assert weights(page)[0] != weights(page)[5]
    assert winner(page) == "chat"
    page.get_by_test_id("word-5").click()
    assert winner(page) == "tapis"


def test_heads_stand_side_by_side(explorer: Open) -> None:
    page = explorer("lang=en")
    page.get_by_role("button", name="Number of heads: 4").click()
    assert page.locator(".heads .card").count() == 4
    page.locator(".heads .name").nth(1).click()
    assert "head 2" in page.locator("section.values").inner_text()
    before = page.locator(".mixing").inner_text()
    page.locator(".heads .card").nth(2).get_by_role("spinbutton").first.fill("10")
    assert page.locator(".mixing").inner_text() != before


# Words, undo, address.


def test_words_are_edited_added_and_removed_from_two_to_twelve(explorer: Open) -> None:
    page = explorer()
    page.get_by_role("button", name="Modifier les mots").click()
    page.get_by_label("Mot 2").fill("chien")
    page.get_by_label("Mot 2").press("Enter")
    assert winner(page_done(page)) == "noir"
    assert "o(chien)" in page.get_by_test_id("sum").inner_text()
    page.get_by_role("button", name="Modifier les mots").click()
    for i in range(5):
        page.get_by_label("Nouveau mot").fill(f"mot{i}")
        page.get_by_label("Nouveau mot").press("Enter")
    assert page.get_by_label("Nouveau mot").count() == 0
    for _ in range(10):
        page.locator(".remove").first.click()
    assert page.locator(".remove:disabled").count() == 2


def page_done(page: Any) -> Any:
    page.get_by_role("button", name="Terminé").click()
    return page


def test_one_drag_is_one_step_of_undo(explorer: Open) -> None:
    page = explorer()
    before = weights(page)
    drag(page, centre(page, TIP), plane_point(page, 1, 1), plane_point(page, -1, 1.5))
    after = weights(page)
    assert after != before
    page.get_by_role("button", name="Annuler").click()
    assert weights(page) == before
    page.keyboard.press("Control+Shift+z")
    assert weights(page) == after
    page.keyboard.press("Control+z")
    assert weights(page) == before
    assert page.get_by_role("button", name="Annuler").is_disabled()


def test_reset_returns_to_the_example_and_can_be_undone(explorer: Open) -> None:
    page = explorer("lang=fr&T=0.3&causal=on&v1=1,1,1,1,1,1&word=4")
    moved = weights(page)
    page.get_by_role("button", name="Réinitialiser").click()
    assert weights(page)[1:3] == [0.24, 0.58]
    page.get_by_role("button", name="Annuler").click()
    assert weights(page) == moved


def test_the_address_brings_everything_back(explorer: Open) -> None:
    page = explorer("lang=fr")
    drag(page, centre(page, TIP), plane_point(page, -1, 1.5))
    page.get_by_role("button", name="Sinusoïdales").click()
    page.get_by_label("Masque causal").check()
    page.get_by_label("Ajouter le résidu").check()
    page.get_by_role("button", name="Nombre de têtes : 2").click()
    page.get_by_test_id("word-6").click()
    playwright.expect(page).to_have_url(re.compile("word=6"))
    shown = page.locator("main section, .answers, .sentence").all_inner_texts()
    again = explorer(page.evaluate("location.hash.slice(1)"))
    assert again.locator("main section, .answers, .sentence").all_inner_texts() == shown


def test_a_link_pasted_into_the_open_page_is_followed(explorer: Open) -> None:
    page = explorer()
    page.evaluate("location.hash = '#lang=fr&T=inf'")
    playwright.expect(page.get_by_test_id("weight-0")).to_have_text("0,14")


# Languages, copying, structure.


def phrases(words: dict[str, Any]) -> set[str]:
    """Texts of a catalogue of three words or more, without what is filled in: surely of one language."""
    found: set[str] = set()
    for value in words.values():
        if isinstance(value, dict):
            found |= phrases(value)
        else:
            found |= {piece.strip() for piece in re.split(r"\{\w+\}", value) if len(piece.split()) >= 3}
    return found


@pytest.mark.parametrize(("lang", "other"), [("fr", "en"), ("en", "fr")])
def test_no_word_is_left_untranslated(explorer: Open, lang: str, other: str) -> None:
    page = explorer(f"lang={other}&heads=3&positions=rotary&residual=on")
    page.get_by_test_id(f"language-{lang}").click()
    said = page.locator("body").inner_text() + " ".join(
        page.evaluate(
            "[...document.querySelectorAll('[aria-label]')].map((e) => e.getAttribute('aria-label'))"
        )
    )
    assert page.evaluate("document.documentElement.lang") == lang
    assert re.findall(r"\b(?:explore|common)\.\w+", said) == []
    foreign = phrases(WORDS[other]["explore"]) - phrases(WORDS[lang]["explore"])
    assert [phrase for phrase in foreign if phrase in said] == []
    assert winner(page) in WORDS_OF[lang]


WORDS_OF = json.loads((ROOT / "src/regard/lessons/example.json").read_text(encoding="utf-8"))["words"]


@pytest.mark.parametrize(
    "fragment",
    [
        "lang=en",
        "lang=en&T=0&causal=on&word=3",
        "lang=en&heads=3&head=2&positions=rotary&residual=on",
        "lang=fr&T=inf&positions=sinusoidal&scale=off",
    ],
)
def test_the_copied_python_gives_the_numbers_on_screen(explorer: Open, fragment: str) -> None:
    page = explorer(fragment)
    names: dict[str, Any] = {}
    exec(page.get_by_test_id("python").inner_text(), names)
    head, chosen = (
        int((re.findall(r"head=(\d)", fragment) or ["1"])[0]) - 1,
        page.locator(".word").evaluate_all(
            "(words) => words.findIndex((word) => word.getAttribute('aria-pressed') === 'true')"
        ),
    )
    assert weights(page) == pytest.approx(names["weights"][head, chosen].tolist(), abs=0.00501)
    assert isinstance(names["result"], torch.Tensor)


def test_copy_as_python_puts_the_lines_on_the_clipboard(explorer: Open) -> None:
    page = explorer("lang=en", permissions=["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="As Python", exact=True).click()
    page.keyboard.press("Enter")
    page.get_by_text("Copied.").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == page.get_by_test_id("python").inner_text()


@pytest.mark.parametrize(
    "fragment", ["lang=fr", "lang=en&heads=4&positions=rotary&causal=on&residual=on&T=0"]
)
@pytest.mark.parametrize(("scheme", "width"), [("light", 1440), ("dark", 400)])
def test_axe_finds_nothing(explorer: Open, fragment: str, scheme: str, width: int) -> None:
    page = explorer(fragment, width=width, color_scheme=scheme, bypass_csp=True)
    if "heads" in fragment:
        page.get_by_role("button", name="Edit words").click()
    page.evaluate((ROOT / "web/node_modules/axe-core/axe.min.js").read_text(encoding="utf-8"))
    found = page.evaluate("axe.run(document)")["violations"]
    assert [(one["id"], [node["html"][:120] for node in one["nodes"]]) for one in found] == []


LONG = ",".join(f"incompréhensib{letter}"[-14:] for letter in "abcdefghijkl")


@pytest.mark.parametrize("width", [320, 400, 700, 1024, 1920])
def test_nothing_sticks_out_at_any_width(explorer: Open, width: int) -> None:
    words = f"&words={LONG}" if width < 700 else ""
    page = explorer(f"lang=fr&heads=4&positions=rotary{words}", width=width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_number_of_nodes_does_not_grow_with_the_square_of_the_words(explorer: Open) -> None:
    count = "document.querySelectorAll('*').length"
    two = explorer("lang=fr&words=un,deux").evaluate(count)
    seven = explorer("lang=fr").evaluate(count)
    twelve = explorer("lang=fr&words=a,b,c,d,e,f,g,h,i,j,k,l").evaluate(count)
    assert (twelve - seven) / 5 <= (seven - two) / 5 * 1.1
