"""The exported file opens alone from the disk and shows what Python computes; tokens stay text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from by_hand import HOSTILE, recording_of
from page import inked, lock, tokens, wait_for_drawn, weights_beside
from regard.serve.session import Session
from regard.show.payload import decode, payload
from running import running

Open = Callable[..., Any]


@pytest.fixture(scope="module")
def fox_file(fox: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return regard.export(fox, tmp_path_factory.mktemp("export") / "fox.html")


def test_the_file_shows_the_same_numbers_as_python(visit: Open, fox_file: Path, fox: Any) -> None:
    page = visit(f"{fox_file.as_uri()}#layer=0&head=0")
    for layer, head, row in ((0, 0, 0), (2, 5, 3), (5, 11, 11)):
        page.keyboard.press("Escape")
        page.get_by_test_id(f"layer-{layer}").click()
        page.get_by_test_id(f"head-{head}").dblclick()
        page.locator(f'[data-site="encoder.layer.{layer}.attention.self"]').wait_for()
        lock(page, row)
        shown = torch.tensor(weights_beside(page))
        assert float((shown - fox.weights(layer=layer, head=head, rows=row)).abs().max()) <= 0.002
    assert inked(page) > 100


def test_the_file_has_the_controls_of_the_application_and_no_form(
    visit: Open, fox_file: Path, link: str
) -> None:
    alone, served = visit(fox_file.as_uri()), visit(link)
    controls = "button, input, select"
    names = [
        [
            control.get_attribute("data-testid")
            for control in page.locator(controls).all()
            if control.get_attribute("data-testid")
        ]
        for page in (alone, served)
    ]
    assert set(names[1]) - set(names[0]) == {"edit"}
    assert set(names[0]) <= set(names[1])


def test_hostile_tokens_stay_text(visit: Open, tmp_path: Path) -> None:
    recording = recording_of(HOSTILE)
    page = visit(regard.export(recording, tmp_path / "hostile.html").as_uri())
    assert page.locator("img").count() == 0
    shown = tokens(page)
    assert shown[0] == "</script><img src=x onerror…"
    assert page.locator("#query-0").get_attribute("title") == HOSTILE[0]
    assert shown[1] == "<!--"
    assert shown[2] == "&amp;"
    assert "عربي" in shown[4]
    assert all(text.strip() for text in shown)
    lock(page, 0)
    assert "onerror" in page.get_by_test_id("readout").inner_text()
    with page.expect_download() as saved:
        page.get_by_test_id("save-svg").click()
    svg = Path(saved.value.path()).read_text(encoding="utf-8")
    assert "<img" not in svg
    assert "onerror" in svg


@pytest.mark.parametrize(
    "text",
    [
        "</script><img src=x onerror=alert(1)>",
        "مرحبا بالعالم هذا نص",
        "שלום 👩‍👩‍👧‍👦 ¿qué?",
        "a\u0000b",
        "x" * 10_000,
        "__QUERY__ {{constructor.constructor('alert(1)')()}}",
    ],
)
def test_texts_that_break_other_viewers_are_recorded_and_shown(
    visit: Open, minilm: Any, tmp_path: Path, text: str
) -> None:
    recording = regard.record(minilm, text, truncate=True)
    page = visit(regard.export(recording, tmp_path / "text.html").as_uri())
    page.locator('[data-testid="lines-canvas"]:not([data-drawn="0"])').wait_for()
    assert page.locator("img").count() == 0
    assert len(tokens(page)) == min(len(recording.tokens()), len(tokens(page)))


def test_512_tokens_open_with_few_elements_and_scroll(visit: Open, tmp_path: Path) -> None:
    recording = recording_of([f"word{i}" for i in range(512)], layers=2, heads=12, sharpness=20.0)
    path = regard.export(recording, tmp_path / "long.html")
    page = visit(path.as_uri())
    page.locator('[data-testid="lines-canvas"]:not([data-drawn="0"])').wait_for()
    assert page.evaluate("document.querySelectorAll('*').length") <= 3000
    page.get_by_test_id("layer-1").click()
    page.locator('[data-site="encoder.layer.1.attention"]').wait_for()
    page.get_by_test_id("queries").focus()
    page.keyboard.press("End")
    page.locator("#query-511").wait_for()
    assert page.evaluate("document.querySelectorAll('*').length") <= 3000


def test_a_damaged_file_says_so(visit: Open, fox_file: Path, tmp_path: Path) -> None:
    text = fox_file.read_text(encoding="utf-8")
    cut = tmp_path / "cut.html"
    at = text.index('"chunks":["') + 60
    cut.write_text(text[:at] + "!!!" + text[at + 3 :], encoding="utf-8")
    page = visit(cut.as_uri(), ready="failure")
    assert page.get_by_test_id("failure").inner_text()


def test_pictures_and_the_page_itself_can_be_saved(
    visit: Open, link: str, session: Session, fox: Any
) -> None:
    page = visit(f"{link}#layer=2&head=5&token=q3")
    page.locator('#query-3[aria-selected="true"]').wait_for()
    starts = {"save-svg": b"<svg", "save-png": b"\x89PNG", "save-html": b"<!doctype html>"}
    files = {}
    for name, start in starts.items():
        with page.expect_download() as saved:
            page.get_by_test_id(name).click()
        files[name] = saved.value
        content = Path(saved.value.path()).read_bytes()
        assert content.lstrip().lower().startswith(start) or start in content[:200]
    copy = Path(files["save-html"].path()).rename(Path(files["save-html"].path()).with_suffix(".html"))
    alone = visit(copy.as_uri())
    alone.locator('#query-3[aria-selected="true"]').wait_for()
    shown = torch.tensor(weights_beside(alone))
    assert float((shown - fox.weights(layer=2, head=5, rows=3)).abs().max()) <= 0.002


def test_an_exported_file_can_save_itself_again(visit: Open, fox_file: Path, fox: Any) -> None:
    page = visit(f"{fox_file.as_uri()}#layer=1&head=1")
    with page.expect_download() as saved:
        page.get_by_test_id("save-html").click()
    path = Path(saved.value.path())
    again = visit(path.rename(path.with_suffix(".html")).as_uri())
    assert tokens(again) == list(fox.tokens().texts)


def test_the_page_counts_the_lines_that_python_counts(visit: Open, fox_file: Path, fox: Any) -> None:
    data = payload(fox)
    weights = decode(data.chunks[3], 12, len(fox.tokens()), len(fox.tokens()))
    page = visit(f"{fox_file.as_uri()}#layer=3&min=0.15")
    wait_for_drawn(page, int((weights >= 0.15).sum()))


def test_two_pages_on_one_server_do_not_mix_their_recordings(visit: Open, minilm: Any) -> None:
    session = Session(model="minilm")
    old = regard.record(minilm, "One two three.")
    session.show(old, minilm)
    with running(session) as door:
        page = visit(f"{door.link()}#layer=0&head=0")
        session.show(regard.record(minilm, "Four five six."), minilm)
        page.get_by_test_id("layer-4").click()
        page.locator('[data-site="encoder.layer.4.attention.self"]').wait_for()
        lock(page, 1)
        shown = torch.tensor(weights_beside(page))
        assert float((shown - old.weights(layer=4, head=0, rows=1)).abs().max()) <= 0.002
