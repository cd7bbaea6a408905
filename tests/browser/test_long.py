"""3,000 tokens in a real browser: a map that zooms to one number, and windows of tokens beside it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from by_hand import recording_of
from long_text import long_recording
from regard.record.recording import Recording
from regard.serve.session import Session
from running import running

Open = Callable[..., Any]
COUNT = 3000
AXE = Path(__file__).parents[2] / "web" / "node_modules" / "axe-core" / "axe.min.js"


@pytest.fixture(scope="module")
def long(minilm: Any) -> Any:
    return long_recording(minilm.tokenizer, COUNT)


@pytest.fixture(scope="module")
def long_link(long: Any) -> Iterator[str]:
    session = Session()
    session.show(long)
    with running(session) as door:
        yield door.link()


def settled(page: Any) -> Any:
    """Wait for all tiles in sight; the board."""
    page.locator('[data-testid="map-board"][data-missing="0"]').wait_for()
    return page.get_by_test_id("map-board")


def number_at(board: Any, name: str) -> float:
    return float(board.get_attribute(f"data-{name}"))


def hover(board: Any, row: float, column: float) -> None:
    """Point at a cell of the map."""
    scale = number_at(board, "scale")
    board.hover(
        position={
            "x": number_at(board, "left") + (column - number_at(board, "column")) * scale,
            "y": number_at(board, "top") + (row - number_at(board, "row")) * scale,
        }
    )


def weight_in(note: str) -> float:
    """The weight that a sentence such as “…with weight 0.0029.” or “…2.9 × 10⁻⁵.” names."""
    found = re.search(r"with weight ([\d.]+)(?:\s×\s10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+))?", note)
    assert found, note
    power = (found[2] or "⁰").translate(str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789"))
    return float(found[1].rstrip(".")) * 10 ** int(power)


def test_everything_is_in_sight_at_first_and_what_the_mask_forbids_is_blank(
    visit: Open, long_link: str
) -> None:
    page = visit(long_link)
    board = settled(page)
    level = int(number_at(board, "level"))
    assert 2 ** (level - 1) < 1 / number_at(board, "scale") <= 2**level
    opaque = page.get_by_test_id("map-canvas").evaluate(
        """canvas => {
            const side = Math.min(canvas.width, canvas.height)
            const { data } = canvas.getContext('2d').getImageData(0, 0, side, side)
            const alpha = (x, y) => data[4 * (Math.floor(y * side) * side + Math.floor(x * side)) + 3]
            return [alpha(0.9, 0.1), alpha(0.6, 0.4), alpha(0.1, 0.9), alpha(0.4, 0.6)]
        }"""
    )
    assert opaque == [0, 0, 255, 255]
    assert "the largest of 8 × 8 weights" in page.get_by_test_id("map-scale").inner_text()


def test_the_crosshair_names_both_tokens_and_the_exact_weight(visit: Open, long_link: str, long: Any) -> None:
    page = visit(f"{long_link}#head=2&heads=all&map=1200,700,100")
    board = settled(page)
    texts = long.tokens().texts
    for row, column in ((1230, 745), (1201, 701)):
        hover(board, row + 0.5, column + 0.5)
        page.get_by_test_id("map-note").filter(has_text="with weight").wait_for()
        note = page.get_by_test_id("map-note").inner_text()
        assert f"({row})" in note or f"“{texts[row]}”" in note
        exact = float(long.weights(layer=0, head=2, rows=row, cols=column))
        assert weight_in(note) == pytest.approx(exact, rel=0.06, abs=6e-5)
        page.get_by_test_id("live").filter(has_text="with weight").wait_for(state="attached")
        page.mouse.move(5, 5)
    hover(board, 1210.5, 790.5)
    assert "map=1200,700,100" in page.url


def test_what_is_forbidden_is_said_and_has_no_number(visit: Open, long_link: str) -> None:
    page = visit(long_link)
    hover(settled(page), 500, 2500)
    page.get_by_test_id("map-note").filter(has_text="the mask forbids it").wait_for()


def test_the_wheel_zooms_to_single_numbers_around_the_pointer(visit: Open, long_link: str) -> None:
    page = visit(long_link)
    board = settled(page)
    hover(board, 2000, 1000)
    for _ in range(12):
        page.mouse.wheel(0, -300)
    page.locator('[data-testid="map-board"][data-scale="64"]').wait_for()
    settled(page)
    assert number_at(board, "level") == 0
    assert abs(number_at(board, "row") - 2000) < 20
    assert abs(number_at(board, "column") - 1000) < 20
    page.wait_for_url(re.compile(r"map=\d+,\d+,\d+"))
    page.get_by_test_id("zoom-whole").click()
    settled(page)
    assert number_at(board, "row") == 0
    page.wait_for_url(re.compile(r"^(?!.*map=)"))


def test_the_keyboard_moves_zooms_and_keeps_a_row(visit: Open, long_link: str, long: Any) -> None:
    page = visit(f"{long_link}#map=1500,1400,20")
    board = settled(page)
    board.focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "+", "Enter"):
        page.keyboard.press(key)
    page.wait_for_url(re.compile(r"token=q\d+"))
    kept = re.search(r"token=q(\d+)", page.url)
    assert kept
    page.locator(f'#query-{kept[1]}[aria-selected="true"]').wait_for()
    page.keyboard.press("0")
    settled(page)
    assert number_at(board, "row") == 0
    page.keyboard.press("Escape")
    page.wait_for_url(re.compile(r"#(?!.*token=)"))


def test_dragging_moves_the_map(visit: Open, long_link: str) -> None:
    page = visit(f"{long_link}#map=1500,1000,100")
    board = settled(page)
    scale, row = number_at(board, "scale"), number_at(board, "row")
    box = board.bounding_box()
    page.mouse.move(box["x"] + 300, box["y"] + 300)
    page.mouse.down()
    page.mouse.move(box["x"] + 200, box["y"] + 250, steps=4)
    page.mouse.up()
    assert number_at(board, "row") == pytest.approx(row + 50 / scale, abs=0.01)
    assert number_at(board, "column") == pytest.approx(1000 + 100 / scale, abs=0.01)
    assert "token=" not in page.url.split("#")[1]


def test_a_word_is_found_kept_and_its_weights_are_pythons(visit: Open, long_link: str, long: Any) -> None:
    page = visit(long_link)
    settled(page)
    page.get_by_test_id("find").fill("softmax")
    page.get_by_test_id("find-next").click()
    page.get_by_test_id("find-next").click()
    page.wait_for_url(re.compile(r"token=q\d+"))
    at = int(re.search(r"token=q(\d+)", page.url)[1])  # type: ignore[index]
    assert "".join(long.tokens().texts[at : at + 3]).replace("##", "").startswith("softmax")
    assert page.get_by_test_id("find-said").inner_text().startswith("2 of ")
    page.locator(f'#query-{at}[aria-selected="true"]').wait_for()
    page.get_by_test_id("readout-long.rest").wait_for()
    readout = page.get_by_test_id("readout").locator("tbody tr").first
    best = long.weights(layer=0, rows=at).mean(0).max(-1)
    assert readout.locator(".place").inner_text() == str(int(best.indices))
    assert float(readout.locator(".figure").first.inner_text()) == pytest.approx(
        float(best.values), abs=0.006
    )


def test_an_end_out_of_sight_is_named_and_a_click_goes_there(visit: Open, long_link: str, long: Any) -> None:
    row = 2500
    weights = long.weights(layer=0, head=1, rows=row)
    weights[2300:] = 0
    key = int(weights.argmax())
    page = visit(f"{long_link}#head=1&token=q{row}&min=0")
    page.locator(f"#query-{row}").wait_for()
    stub = page.get_by_test_id(f"stub-key-{key}")
    stub.click()
    page.locator(f"#key-{key}").wait_for()
    assert page.locator(f"#query-{row}").is_visible()
    shown = float(page.locator(f"#key-{key} .weight").evaluate("e => e.style.getPropertyValue('--weight')"))
    assert shown == pytest.approx(float(weights[key]), abs=1e-5)


def test_a_key_shows_who_reads_it_in_the_head_of_the_map(visit: Open, long_link: str, long: Any) -> None:
    page = visit(f"{long_link}#head=3&heads=all&token=k200")
    page.get_by_test_id("readout").locator("tbody tr").first.wait_for()
    best = long.weights(layer=0, head=3, cols=200).max(0)
    assert page.get_by_test_id("readout").locator(".place").first.inner_text() == str(int(best.indices))
    assert "in head 3" in page.get_by_test_id("lines-note").inner_text()


def test_the_lines_in_sight_are_the_strongest_of_every_row_and_head(
    visit: Open, long_link: str, long: Any
) -> None:
    page = visit(f"{long_link}#min=0.3")
    page.locator('[data-testid="lines-canvas"]:not([data-drawn="0"])').wait_for()
    rows = len(page.get_by_test_id("queries").locator("[role=option]").all()) - 4  # spare ones, below
    drawn = int(page.get_by_test_id("lines-canvas").get_attribute("data-drawn"))
    lines = [(long.weights(layer=0, rows=slice(0, n)) >= 0.3).sum().item() for n in (rows - 1, rows)]
    assert lines[0] <= drawn <= lines[1]


def test_the_page_stays_small_wherever_it_goes(visit: Open, long_link: str) -> None:
    page = visit(long_link)
    settled(page)
    for place in ("#2999", "#5", "#1500"):
        page.get_by_test_id("find").fill(place)
        page.keyboard.press("Enter")
        page.locator(f"#query-{place[1:]}").wait_for()
        page.get_by_test_id("zoom-in").click()
        settled(page)
        assert page.evaluate("document.querySelectorAll('*').length") <= 3000


def test_the_mean_can_be_shown_and_another_layer_keeps_the_place(visit: Open, long_link: str) -> None:
    page = visit(f"{long_link}#map=1000,500,1200")
    settled(page)
    page.get_by_test_id("pool-mean").click()
    settled(page)
    assert "the mean of" in page.get_by_test_id("map-scale").inner_text()
    page.get_by_test_id("layer-1").click()
    page.locator('[data-testid="lines-canvas"][data-site="layers.1.self_attn"]').wait_for()
    board = settled(page)
    assert (number_at(board, "row"), number_at(board, "column")) == (1000, 500)
    assert "pool=mean" in page.url


def test_a_recording_this_long_is_not_exported_but_its_pictures_are(visit: Open, long_link: str) -> None:
    page = visit(f"{long_link}#token=q20")
    settled(page)
    page.get_by_test_id("save-html").click()
    assert "regard view long.regard" in page.get_by_test_id("export-failed").inner_text()
    with page.expect_download() as download:
        page.get_by_test_id("save-svg").click()
    svg = Path(download.value.path()).read_text(encoding="utf-8")
    assert svg.count("<image ") == 1
    assert ">1000</text>" in svg  # a position along the map
    assert len(svg) < 2_000_000
    with page.expect_download():
        page.get_by_test_id("save-png").click()


@pytest.mark.parametrize(
    ("options", "fragment"),
    [
        ({"color_scheme": "light"}, "lang=fr&token=q700"),
        ({"color_scheme": "dark"}, "map=900,800,12"),
        ({"width": 400, "height": 800, "has_touch": True}, "token=q40"),
    ],
)
def test_axe_finds_nothing(visit: Open, long_link: str, options: dict[str, Any], fragment: str) -> None:
    page = visit(f"{long_link}#{fragment}", **options)
    settled(page)
    page.add_script_tag(content=AXE.read_text(encoding="utf-8"))
    found = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    assert [f"{v['id']} {v['nodes'][0]['html'][:150]}" for v in found["violations"]] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= options.get("width", 1440)


def test_a_thumb_taps_and_two_fingers_zoom(visit: Open, long_link: str) -> None:
    page = visit(long_link, width=400, height=800, has_touch=True)
    board = settled(page)
    board.scroll_into_view_if_needed()
    before = number_at(board, "scale")
    box = board.bounding_box()
    x, y = box["x"] + 150, box["y"] + 200
    touch = page.context.new_cdp_session(page)

    def fingers(kind: str, apart: float) -> None:
        points = [{"x": x - apart, "y": y, "id": 0}, {"x": x + apart, "y": y, "id": 1}]
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points if apart else []})

    fingers("touchStart", 20)
    for apart in (30, 45, 60, 80):
        fingers("touchMove", apart)
    fingers("touchEnd", 0)
    assert number_at(board, "scale") == pytest.approx(before * 4, rel=0.1)
    page.touchscreen.tap(x, y)
    page.wait_for_url(re.compile(r"token=q\d+"))


def test_a_failing_part_is_said_and_can_be_asked_for_again(visit: Open, long_link: str) -> None:
    failing = True

    def answer(route: Any) -> None:
        body = json.dumps({"error": "Weights of x are not numbers.", "kind": "RecordingError"})
        route.fulfill(
            status=400, body=body, content_type="application/json"
        ) if failing else route.continue_()

    page = visit(long_link, expected="400")
    settled(page)
    page.route("**/api/tiles/**", answer)
    page.get_by_test_id("layer-1").click()
    assert "are not numbers" in page.get_by_test_id("map-failure").inner_text()
    failing = False
    page.get_by_test_id("map-failure").get_by_role("button").click()
    settled(page)


def test_short_and_long_attentions_of_one_model_stand_side_by_side(visit: Open) -> None:
    short, long = recording_of(["a", "b", "c"], layers=1), recording_of(["x"] * 1100, causal_from=0, layers=1)
    site = replace(long.sites[0], name="decoder", queries="long", keys="long")
    both = Recording(
        (short.sites[0], site), {**short.sequences, "long": long.sequences["text"]}, short.provenance
    )
    session = Session()
    session.show(both)
    with running(session) as door:
        page = visit(door.link())
        page.get_by_test_id("board").wait_for()
        page.get_by_test_id("kind-causal").click()
        settled(page)
        page.get_by_test_id("kind-self").click()
        page.get_by_test_id("board").wait_for()
        assert page.get_by_test_id("map-board").count() == 0
        page.go_back()
        settled(page)


def test_a_learned_sink_is_a_column_of_its_own(visit: Open) -> None:
    recording = recording_of(["[CLS]", "le", "chat", "dort"], causal_from=0)
    for site in recording.sites:
        site.sinks = torch.tensor([0.5, 0.5, 0.5])
    session = Session()
    session.show(recording)
    with running(session) as door:
        page = visit(f"{door.link()}#head=1&token=q3")
        last = page.get_by_test_id("keys").locator("[role=option]").last
        assert last.locator(".word").inner_text() == "learned sink"
        exact = 1 - float(recording.weights(layer=0, head=1, rows=3).sum())
        shown = float(last.locator(".weight").evaluate("e => e.style.getPropertyValue('--weight')"))
        assert shown == pytest.approx(exact, abs=0.002)
        assert page.get_by_test_id("sink-note").is_visible()


def test_tokens_that_the_model_wrote_are_marked(visit: Open) -> None:
    recording = recording_of(["Once", "upon", "a", "time"], causal_from=0)
    recording.sequences["text"] = recording.sequences["text"].written_from(2)
    session = Session()
    session.show(recording)
    with running(session) as door:
        page = visit(door.link())
        marked = page.get_by_test_id("queries").locator(".generated .word").all_text_contents()
        assert marked == ["a", "time"]
        assert "from position 2 on" in page.get_by_test_id("generated-note").inner_text()
