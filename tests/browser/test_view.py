"""The view in a running application: lines, heads, filters, lock and release, languages, another text."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from by_hand import recording_of
from page import drawn, inked, lock, tokens, wait_for_drawn, weights_beside
from regard.serve.session import Session
from regard.show.payload import decode
from regard.words import say
from running import running

Open = Callable[..., Any]
ROOT = Path(__file__).parents[2]
WORDS = {
    language: json.loads((ROOT / f"web/src/i18n/{language}.json").read_text(encoding="utf-8"))
    for language in ("en", "fr")
}


def shown_weights(session: Session, layer: int) -> torch.Tensor:
    """What the page has for a layer: the payload, decoded."""
    data = session.payload()
    assert data
    count = len(data.header["sequences"]["text"]["tokens"])
    return decode(data.chunks[layer], data.header["sites"][layer]["heads"], count, count)


def test_every_weight_from_the_threshold_on_is_a_line(visit: Open, link: str, session: Session) -> None:
    page = visit(f"{link}#layer=2&min=0.1")
    expected = int((shown_weights(session, 2) >= 0.1).sum())
    wait_for_drawn(page, expected)
    assert inked(page) > 1000
    assert tokens(page, "queries") == tokens(page, "keys")
    assert tokens(page)[:4] == ["[CLS]", "the", "quick", "brown"]


def test_the_first_screen_shows_lines_without_a_click(visit: Open, link: str) -> None:
    page = visit(link)
    page.locator('[data-testid="lines-canvas"]:not([data-drawn="0"])').wait_for()
    assert drawn(page) >= 10
    assert inked(page) > 1000


def test_another_layer_shows_another_picture(visit: Open, link: str, session: Session) -> None:
    page = visit(f"{link}#min=0.2")
    for layer in (5, 0, 3):
        page.get_by_test_id(f"layer-{layer}").click()
        wait_for_drawn(page, int((shown_weights(session, layer) >= 0.2).sum()))
        assert page.get_by_test_id("lines-canvas").get_attribute("data-site") == (
            f"encoder.layer.{layer}.attention.self"
        )
        assert f"layer={layer}" in page.url


def test_a_click_on_a_head_hides_it_and_a_double_click_shows_it_alone(
    visit: Open, link: str, session: Session
) -> None:
    page = visit(f"{link}#layer=1&min=0.1")
    lines = (shown_weights(session, 1) >= 0.1).sum(dim=(1, 2)).tolist()
    wait_for_drawn(page, sum(lines))
    page.get_by_test_id("head-4").click()
    assert page.get_by_test_id("head-4").get_attribute("aria-pressed") == "false"
    wait_for_drawn(page, sum(lines) - lines[4])
    page.get_by_test_id("head-7").dblclick()
    wait_for_drawn(page, lines[7])
    page.get_by_test_id("heads-all").click()
    wait_for_drawn(page, sum(lines))


def test_twelve_heads_have_twelve_colours(visit: Open, link: str) -> None:
    page = visit(link)
    colours = [
        page.get_by_test_id(f"head-{head}").locator("line").get_attribute("stroke") for head in range(12)
    ]
    assert len(set(colours)) == 12


def test_a_locked_token_shows_its_weights_as_python_computes_them_until_escape(
    visit: Open, link: str, fox: Any
) -> None:
    page = visit(f"{link}#layer=2&head=5")
    lock(page, 3)
    expected = fox.weights(layer=2, head=5, rows=3)
    shown = torch.tensor(weights_beside(page))
    assert float((shown - expected).abs().max()) <= 0.002
    assert page.locator("#query-3").get_attribute("aria-selected") == "true"
    assert "token=q3" in page.url
    readout = page.get_by_test_id("readout").inner_text()
    assert "brown" in readout
    page.keyboard.press("Escape")
    assert page.locator("#query-3").get_attribute("aria-selected") == "false"
    assert "token=" not in page.url.split("#")[1]
    assert set(weights_beside(page)) == {0.0}


def test_a_locked_key_shows_who_reads_it(visit: Open, link: str, fox: Any) -> None:
    page = visit(f"{link}#layer=4&head=0")
    lock(page, 4, "key")
    shown = torch.tensor(weights_beside(page, "queries"))
    assert float((shown - fox.weights(layer=4, head=0, cols=4)).abs().max()) <= 0.002


def test_pointing_shows_a_token_and_leaving_takes_it_away(visit: Open, link: str, fox: Any) -> None:
    page = visit(f"{link}#layer=2&head=5")
    page.locator("#query-4").hover()
    shown = torch.tensor(weights_beside(page))
    assert float((shown - fox.weights(layer=2, head=5, rows=4)).abs().max()) <= 0.002
    page.mouse.move(5, 5)
    page.locator("#key-0 .weight", has_text=re.compile("^$")).wait_for(state="attached")


def test_the_keyboard_walks_locks_and_releases(visit: Open, link: str, fox: Any) -> None:
    page = visit(f"{link}#layer=2&head=5")
    page.get_by_test_id("queries").focus()
    page.keyboard.press("Home")
    for key in ("ArrowDown", "ArrowDown", "Enter"):
        page.keyboard.press(key)
    assert page.locator("#query-2").get_attribute("aria-selected") == "true"
    shown = torch.tensor(weights_beside(page))
    assert float((shown - fox.weights(layer=2, head=5, rows=2)).abs().max()) <= 0.002
    page.keyboard.press("Escape")
    assert page.locator("#query-2").get_attribute("aria-selected") == "false"


def test_pointing_at_a_cell_of_the_matrix_lights_its_row_in_the_lines(visit: Open, link: str) -> None:
    page = visit(f"{link}#layer=2&head=5")
    board = page.get_by_test_id("board")
    cell, left, top = (float(board.get_attribute(f"data-{name}")) for name in ("cell", "left", "top"))
    board.hover(position={"x": left + 6.5 * cell, "y": top + 2.5 * cell})
    page.locator("#query-2.marked").wait_for()
    page.locator("#key-6.marked").wait_for()


def test_hiding_special_tokens_says_how_much_weight_went_to_them(visit: Open, link: str, fox: Any) -> None:
    page = visit(f"{link}#layer=5&head=0&min=0.05")
    special = torch.tensor(fox.tokens().special)
    weights = fox.weights(layer=5, head=0)
    share = float(weights[~special][:, special].sum() / weights[~special].sum())
    assert f"{share:.0%}" in page.get_by_test_id("special-share").inner_text()
    page.get_by_test_id("hide-special").check()
    assert tokens(page) == [text for text in fox.tokens().texts if not text.startswith("[")]
    inner = weights[~special][:, ~special]
    wait_for_drawn(page, int((inner >= 0.05).sum()))


def test_a_pair_can_be_filtered_by_who_reads_whom(visit: Open, minilm: Any, pair: Any) -> None:
    session = Session(model="minilm")
    session.show(pair, minilm)
    segments = torch.tensor(pair.tokens().segments)
    with running(session) as door:
        page = visit(f"{door.link()}#layer=3&min=0.05")
        weights = shown_weights(session, 3) >= 0.05
        for name, (a, b) in {"aa": (0, 0), "ab": (0, 1), "ba": (1, 0), "bb": (1, 1)}.items():
            page.get_by_test_id(f"pair-{name}").click()
            wait_for_drawn(page, int(weights[:, segments == a][:, :, segments == b].sum()))
            assert f"pair={name}" in page.url
        page.get_by_test_id("pair-all").click()
        wait_for_drawn(page, int(weights.sum()))


def test_the_threshold_can_be_moved(visit: Open, link: str, session: Session) -> None:
    page = visit(f"{link}#layer=2&min=0.1")
    page.get_by_test_id("min").fill("50")
    wait_for_drawn(page, int((shown_weights(session, 2) >= 0.25).sum()))
    assert "min=0.25" in page.url


def test_the_address_brings_back_the_view(visit: Open, link: str) -> None:
    page = visit(f"{link}#layer=2&head=5&token=q3&min=0.1&lang=fr")
    lines = drawn(page)
    again = visit(page.url)
    wait_for_drawn(again, lines)
    assert again.locator("#query-3").get_attribute("aria-selected") == "true"
    assert again.locator("html").get_attribute("lang") == "fr"


@pytest.mark.parametrize("language", ["en", "fr"])
def test_the_page_speaks_both_languages(visit: Open, link: str, language: str) -> None:
    page = visit(link)
    page.get_by_test_id(f"language-{language}").click()
    assert page.locator("html").get_attribute("lang") == language
    text = page.locator("body").inner_text()
    mine, other = WORDS[language], WORDS["en" if language == "fr" else "fr"]
    assert mine["view"]["claim"] in text or mine["view"]["hide_special"] in text
    for key in ("queries", "keys", "hide_special", "all_heads", "chip_hint"):
        assert mine["view"][key] in text
        assert other["view"][key] == mine["view"][key] or other["view"][key] not in text
    assert f"lang={language}" in page.url


def test_provenance_says_model_kernel_type_and_proof(visit: Open, link: str, fox: Any) -> None:
    said = visit(link).get_by_test_id("provenance").inner_text()
    for word in ("minilm", "sdpa", "float32"):
        assert word in said
    mantissa, exponent = f"{fox.proof.max_error:.0e}".split("e")
    assert re.search(rf"{mantissa}\s?×\s?10", said), (said, exponent)


def test_another_text_is_recorded_in_the_page(visit: Open, minilm: Any) -> None:
    session = Session(model="minilm")
    session.show(regard.record(minilm, "One."), minilm)
    with running(session) as door:
        page = visit(f"{door.link()}#layer=2&head=5")
        page.get_by_test_id("edit").click()
        page.get_by_test_id("text-a").fill("Cats sleep.")
        page.get_by_test_id("as-pair").check()
        page.get_by_test_id("text-b").fill("Dogs bark.")
        page.get_by_test_id("record").click()
        page.locator("#query-8").wait_for()
        expected = regard.record(minilm, "Cats sleep.", "Dogs bark.")
        assert tokens(page) == list(expected.tokens().texts)
        lock(page, 2)
        shown = torch.tensor(weights_beside(page))
        assert float((shown - expected.weights(layer=2, head=5, rows=2)).abs().max()) <= 0.002
        assert "Cats sleep." in page.get_by_test_id("text").inner_text()


def test_what_cannot_be_recorded_is_one_sentence_and_the_old_view_stays(visit: Open, minilm: Any) -> None:
    session = Session(model="minilm")
    session.show(regard.record(minilm, "One two."), minilm)
    with running(session) as door:
        page = visit(door.link(), expected="the server responded with a status of 4")
        page.get_by_test_id("language-fr").click()
        page.get_by_test_id("edit").click()
        page.get_by_test_id("text-a").fill("   ")
        page.get_by_test_id("record").click()
        error = page.get_by_test_id("form-error")
        error.wait_for()
        assert "vide" in error.inner_text()
        page.get_by_test_id("text-a").fill("chat " * 600)
        page.get_by_test_id("record").click()
        page.get_by_test_id("cut").wait_for()
        assert "le modèle en accepte 512. Raccourcissez-le, ou laissez-le couper." in error.inner_text()
        assert tokens(page) == ["[CLS]", "one", "two", ".", "[SEP]"]
        page.get_by_test_id("cut").click()
        page.locator("#query-20").wait_for()
        header = session.payload()
        assert header
        assert len(header.header["sequences"]["text"]["tokens"]) == 512


def test_a_server_without_a_text_begins_with_the_form(visit: Open, minilm: Any) -> None:
    session = Session(model="minilm")
    session._subject = ("minilm", minilm)
    with running(session) as door:
        page = visit(door.link(), ready="text-a")
        page.get_by_test_id("text-a").fill("Hello there.")
        page.get_by_test_id("record").click()
        page.locator("#query-3").wait_for()
        assert tokens(page) == ["[CLS]", "hello", "there", ".", "[SEP]"]


def test_without_the_token_the_browser_sees_one_sentence(visit: Open, chromium: Any, link: str) -> None:
    page = chromium.new_context().new_page()
    response = page.goto(link.split("?")[0])
    assert response.status == 403
    assert "Open the link that regard printed" in page.locator("body").inner_text()
    page.context.close()


@pytest.mark.parametrize("width", [390, 700, 1000, 1300, 1440, 1920])
def test_thirty_layers_stand_in_rows_of_about_the_same_length(visit: Open, width: int) -> None:
    session = Session()
    session.show(recording_of(["le", "chat", "dort"], layers=30))
    with running(session) as door:
        page = visit(door.link(), width=width)
        tops = [page.get_by_test_id(f"layer-{layer}").bounding_box()["y"] for layer in range(30)]
        rows = [tops.count(top) for top in sorted(set(tops))]
        assert len(set(rows[:-1])) <= 1
        assert rows[0] - rows[-1] < len(rows), rows
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_what_the_recorder_says_follows_the_language_of_the_reader(visit: Open) -> None:
    recording = recording_of(["le", "chat", "dort"])
    said = say("notes.rows_missing", count=2)
    provenance = dataclasses.replace(recording.provenance, notes=(said, "In no catalogue."))
    session = Session()
    session.show(dataclasses.replace(recording, provenance=provenance))
    with running(session) as door:
        page = visit(door.link())
        missing, notes = page.get_by_test_id("missing-note"), page.get_by_test_id("recorder-note")
        assert missing.all_inner_texts() == [said], "what is missing is said first"
        assert notes.all_inner_texts() == ["In no catalogue."]
        page.get_by_test_id("language-fr").click()
        assert missing.inner_text().startswith("Les 2 premières lignes sont vides\xa0: ")
        assert notes.last.inner_text() == "In no catalogue."


def test_from_the_matrix_the_keyboard_goes_on_to_the_numbers_of_its_cell(visit: Open, link: str) -> None:
    page = visit(link)
    board, numbers = page.get_by_test_id("board"), page.get_by_test_id("readout")
    board.focus()
    board.press("ArrowDown")
    said = numbers.locator("caption").inner_text()
    board.press("Tab")
    assert page.evaluate("document.activeElement.closest('[data-testid=readout]') !== null")
    assert numbers.locator("caption").inner_text() == said
    page.get_by_test_id("save-svg").focus()
    assert numbers.locator("caption").count() == 0
