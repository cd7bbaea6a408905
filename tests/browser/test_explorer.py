"""The explorer in a real Chromium, opened from a file: by mouse, by finger and by keyboard."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from explorer_page import TIP, centre, drag, entropy, plane_point, weights, winner

playwright = pytest.importorskip("playwright.sync_api", exc_type=ImportError)
Open = Callable[..., Any]


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
    alpha = """(canvas) => {
        const { width, height } = canvas
        const { data } = canvas.getContext('2d').getImageData(0, 0, width, height)
        const along = (cell, side) => Math.floor(((cell + 0.2) * side) / 7)
        const alpha = ([i, j]) => data[4 * (along(i, height) * width + along(j, width)) + 3]
        return [[0, 0], [0, 6], [6, 0], [3, 4]].map(alpha)
    }"""
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
