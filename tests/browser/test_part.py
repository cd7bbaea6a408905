"""The page of a recording of which only some heads, or only the largest weights, were kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from by_hand import recording_of
from regard.record.keeping import Keep
from regard.serve.session import Session
from running import running

Open = Callable[..., Any]
WORDS = ["le", "chat", "noir", "dort", "sur", "le", "tapis", "."]


def colours(page: Any) -> dict[str, str]:
    chips = page.locator("[data-testid^=head-]")
    read = "chips => chips.map(c => [c.dataset.testid, c.style.getPropertyValue('--colour')])"
    return dict(chips.evaluate_all(read))


def test_heads_have_the_numbers_and_colours_of_the_model(visit: Open) -> None:
    session = Session()
    whole = recording_of(WORDS, heads=6)
    session.show(recording_of(WORDS, heads=6))
    with running(session) as door:
        page = visit(f"{door.link()}#head=4")
        page.get_by_test_id("board").wait_for()
        known = colours(page)
        session.show(Keep(heads=[1, 4]).of(recording_of(WORDS, heads=6)))
        page = visit(f"{door.link()}#head=4&token=q2")
        page.get_by_test_id("board").wait_for()
        assert colours(page) == {name: known[name] for name in ("head-1", "head-4")}
        assert page.get_by_test_id("matrix-head").input_value() == "4"
        assert page.get_by_test_id("matrix-head").locator("option").all_inner_texts() == ["1", "4"]
        exact = whole.weights(layer=0, head=4, rows=2)
        read = "es => es.map(e => e.querySelector('.weight')?.style.getPropertyValue('--weight'))"
        shown = page.get_by_test_id("keys").locator("[role=option]").evaluate_all(read)
        assert max(abs(float(s) - float(w)) for s, w in zip(shown, exact, strict=True)) < 0.002
        page.get_by_test_id("head-1").click()
        assert "heads=all" in page.url or "heads=1,4" in page.url


def test_what_was_not_kept_is_no_number_on_the_page(visit: Open) -> None:
    session = Session()
    session.show(Keep("top_k", k=3).of(recording_of(WORDS, heads=2)))
    with running(session) as door:
        page = visit(f"{door.link()}#head=1&token=q2")
        page.get_by_test_id("board").wait_for()
        weights = page.get_by_test_id("keys").locator("[role=option] .weight").all_inner_texts()
        assert sum(text != "" for text in weights) == 3
        rows = page.get_by_test_id("readout").locator("tbody tr")
        assert rows.count() == 3
        assert "Only the 3 largest weights" in page.get_by_test_id("readout").inner_text()
        assert "only the 3 largest weights were kept" in page.get_by_test_id("provenance").inner_text()
        assert "not kept" in page.get_by_test_id("matrix-scale").inner_text()
        board = page.get_by_test_id("board")
        board.focus()
        said = set()
        for _ in range(len(WORDS)):
            page.keyboard.press("ArrowRight")
            said.add("was not kept" in page.get_by_test_id("matrix-note").inner_text())
        assert said == {True, False}
