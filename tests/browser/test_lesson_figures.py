"""Every figure of the lessons by hand: by mouse, by finger and by keyboard."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from lesson_page import bars, loudest

Open = Callable[..., Any]


def test_chapter_1_turning_the_query_changes_who_answers(lesson: Open) -> None:
    page = lesson(1)
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


def test_chapter_1_the_arrow_keys_turn_and_lengthen(lesson: Open) -> None:
    page = lesson(1)
    before = bars(page)["1 black"]
    page.get_by_role("slider").focus()
    for _ in range(6):
        page.keyboard.press("ArrowUp")
    assert bars(page)["1 black"] > before
    for _ in range(30):
        page.keyboard.press("ArrowLeft")
    assert loudest(page) != "black"


def test_chapter_1_a_finger_moves_the_arrow(lesson: Open) -> None:
    page = lesson(1, has_touch=True, is_mobile=True, width=400, height=800)
    plane = page.locator("figure svg.grab")
    plane.scroll_into_view_if_needed()
    box = plane.bounding_box()
    page.touchscreen.tap(box["x"] + box["width"] * 0.08, box["y"] + box["height"] * 0.5)
    assert loudest(page) == "sleeps"


def test_chapter_2_every_number_can_be_changed(lesson: Open) -> None:
    page = lesson(2)
    page.get_by_role("button", name="4 Weighted sum").click()
    before = page.locator("tfoot strong").inner_text()
    page.get_by_label("value, black, entry 1").fill("9")
    assert page.locator("tfoot strong").inner_text() != before
    page.get_by_role("button", name="1 Scores").click()
    page.get_by_label("key, sleeps, entry 1").fill("2")
    page.get_by_role("button", name="3 Softmax").click()
    assert page.locator("tbody tr").nth(3).inner_text().endswith("0.278")


def test_chapter_3_longer_vectors_saturate_the_undivided_softmax(lesson: Open) -> None:
    page = lesson(3)
    slider = page.get_by_role("slider")
    slider.press("Home")
    assert bars(page, 0) == bars(page, 1)
    slider.press("End")
    assert max(bars(page, 0).values()) > 0.7
    assert max(bars(page, 1).values()) < 0.5


def test_chapter_4_both_limits_of_the_temperature_are_reached(lesson: Open) -> None:
    page = lesson(4)
    slider = page.get_by_role("slider")
    slider.press("End")
    assert set(bars(page).values()) == {0.14}
    assert "as if 7.0 of 7 words" in page.locator(".said").inner_text()
    slider.press("Home")
    assert sorted(bars(page).values()) == [0, 0, 0, 0, 0, 0, 1]


def test_chapter_5_masks_count_their_cells_and_say_what_is_reached(lesson: Open) -> None:
    page = lesson(5)
    assert "28 of 49" in page.locator(".said").inner_text()
    page.get_by_role("button", name="16", exact=True).click()
    page.get_by_role("button", name="window", exact=True).click()
    page.get_by_role("slider", name="Layers").press("End")
    page.get_by_role("slider", name="Word that asks").press("End")
    assert page.locator(".reach li").first.inner_text().split() == ["1", "8"]
    page.get_by_role("button", name="window + global").click()
    assert page.locator(".reach li").nth(5).inner_text().split() == ["6", "2"]


def test_chapter_5_a_click_on_the_matrix_chooses_who_asks(lesson: Open) -> None:
    page = lesson(5)
    page.locator("figure canvas").click(position={"x": 20, "y": 8})
    assert page.locator(".rows button[aria-pressed=true]").inner_text() == "the"
    assert page.locator(".reach li.no").count() == 6


def test_chapter_6_the_kind_says_who_asks_and_who_answers(lesson: Open) -> None:
    page = lesson(6)
    assert page.locator(".said").inner_text().startswith("“cat” looks most at “chat”")
    page.get_by_role("button", name="Causal self-attention (decoder)").click()
    page.locator(".asks button").first.click()
    assert page.locator(".said").inner_text() == "“the” looks most at “the”: 100%."


def test_chapter_7_a_habit_finds_its_head(lesson: Open) -> None:
    page = lesson(7)
    assert page.locator(".head", has_text="layer 0, head 2: score 1.00").is_visible()
    page.get_by_role("button", name="the noun, from its adjective").click()
    assert page.locator(".head", has_text="layer 2, head 8").is_visible()
    page.get_by_role("button", name=re.compile("^layer 5, head 11:")).click()
    assert page.locator(".head", has_text="layer 5, head 11").is_visible()


def test_chapter_8_a_shuffle_moves_the_outputs_and_changes_none_without_positions(lesson: Open) -> None:
    page = lesson(8)
    page.get_by_role("button", name="Shuffle").click()
    assert set(page.locator(".shift").all_inner_texts()) == {"="}
    page.get_by_role("button", name="sinusoidal").click()
    assert "=" not in page.locator(".shift").all_inner_texts()
    page.get_by_role("button", name="Put back in order").click()
    assert set(page.locator(".shift").all_inner_texts()) == {"="}


def test_chapter_9_says_where_its_times_come_from_or_that_there_are_none(lesson: Open) -> None:
    said = lesson(9).locator("section .said").inner_text()
    assert "Measured on 20" in said or "holds no measured times" in said


def test_chapter_10_attention_reads_the_text_and_memory_what_was_read_before(lesson: Open) -> None:
    page = lesson(10)
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


def test_chapter_7_the_grid_of_heads_is_one_stop_of_the_tab_key_and_arrows_walk_in_it(lesson: Open) -> None:
    page = lesson(7)
    page.get_by_role("button", name="the same word elsewhere").focus()
    page.keyboard.press("Tab")
    head = page.locator(".grid button:focus")
    assert head.get_attribute("aria-label").startswith("layer 0, head 2")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowLeft")
    assert head.get_attribute("aria-label").startswith("layer 1, head 1")
    assert head.get_attribute("aria-pressed") == "true"
    for _ in range(5):
        page.keyboard.press("Tab")
    assert page.locator(".asks button:focus").inner_text() == "[CLS]"
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    spoken = page.locator(".answers li").all_inner_texts()
    assert sum(int(re.findall(r"(\d+)%", word)[0]) for word in spoken) == pytest.approx(100, abs=8)


# What was set stays when the language changes.


@pytest.mark.parametrize("which", [1, 2])
def test_a_change_of_language_keeps_the_numbers_of_the_figure(lesson: Open, which: int) -> None:
    page = lesson(which, "fr")
    stage = page.locator("figure .stage").first
    stage.get_by_role("button", name="noir", exact=True).click()
    if which == 2:
        stage.locator("input").first.fill("0.5")
    french = stage.inner_text() if which == 1 else stage.locator("td").all_inner_texts()
    page.get_by_test_id("language-en").click()
    page.wait_for_function("document.documentElement.lang === 'en'")
    english = page.locator("figure .stage").first
    english.wait_for()
    assert english.get_by_role("button", name="black", exact=True).get_attribute("aria-pressed") == "true"
    if which == 2:
        assert english.locator("input").first.input_value() == "0.5"
    page.get_by_test_id("language-fr").click()
    page.wait_for_function("document.documentElement.lang === 'fr'")
    back = page.locator("figure .stage").first
    back.wait_for()
    assert (back.inner_text() if which == 1 else back.locator("td").all_inner_texts()) == french


def test_every_figure_keeps_its_switches_in_the_other_language_and_forgets_them_with_the_page(
    lesson: Open,
) -> None:
    page = lesson(5, "fr")
    page.get_by_role("button", name="BigBird").click()
    page.get_by_role("button", name="64").click()
    page.get_by_test_id("language-en").click()
    page.wait_for_function("document.documentElement.lang === 'en'")
    for name in ("BigBird", "64"):
        assert page.get_by_role("button", name=name).get_attribute("aria-pressed") == "true"
    page.locator("a[rel=next]").click()
    page.locator("a[rel=prev]").click()
    assert page.get_by_role("button", name="causal").get_attribute("aria-pressed") == "true"
