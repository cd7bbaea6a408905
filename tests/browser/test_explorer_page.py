"""The explorer's page as a whole: its words, undo, address, languages, copied lines and structure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import torch

from explorer_page import TIP, centre, drag, plane_point, weights, winner

playwright = pytest.importorskip("playwright.sync_api", exc_type=ImportError)
Open = Callable[..., Any]

ROOT = Path(__file__).parents[2]
WORDS = {
    lang: json.loads((ROOT / f"web/src/i18n/{lang}.json").read_text(encoding="utf-8"))
    for lang in ("fr", "en")
}


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


@pytest.mark.parametrize("width", [320, 400, 640, 700, 1024, 1920])
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


@pytest.mark.parametrize(("width", "height"), [(1280, 720), (1440, 900), (1920, 1080)])
def test_the_switches_are_seen_without_scrolling(explorer: Open, width: int, height: int) -> None:
    page = explorer("lang=fr", width=width, height=height)
    for name in ("Diviser les scores", "Masque causal", "Ajouter le résidu"):
        assert page.get_by_label(name).bounding_box()["y"] < height / 2
    for name in ("Rotatives", "Nombre de têtes : 4"):
        assert page.get_by_role("button", name=name).bounding_box()["y"] < height / 2


def test_hostile_words_are_inert_text(explorer: Open) -> None:
    words = [
        "</script><img/src=x/onerror=alert(1)>",
        "__proto__",
        "constructor",
        "{word}",
        "$&",
        "\u202elive",
    ]
    page = explorer("lang=en&words=" + quote(",".join(words)))
    shown = page.locator(".word .text").all_inner_texts()
    assert shown == ["</script><img/", "__proto__", "constructor", "{word}", "$&", "live"]
    assert page.locator("main img").count() == 0
    names: dict[str, Any] = {}
    exec(page.get_by_test_id("python").inner_text(), names)
    assert names["words"] == shown


@pytest.mark.parametrize(
    "fragment",
    [
        "T=1e-300&v1=0,0,0,0,0,0",
        "T=1e6&scale=off",
        "T=-1&word=99&heads=9&head=7&words=&v0=NaN,1,2,3,4,5&dk=7&seed=-1&turns0=1",
        "T=0&v0=1,1,1,1,1,1&v1=1,1,1,1,1,1&v2=1,1,1,1,1,1&v3=1,1,1,1,1,1&v4=1,1,1,1,1,1&v5=1,1,1,1,1,1",
        "%E0%A4%A&&&===",
    ],
)
def test_absurd_links_still_give_a_page_of_numbers(explorer: Open, fragment: str) -> None:
    page = explorer(f"lang=en&{fragment}")
    assert sum(weights(page)) == pytest.approx(1, abs=0.04)
    assert "NaN" not in page.locator("body").inner_text()


def test_on_paper_the_page_is_light_and_without_tools(explorer: Open) -> None:
    page = explorer("lang=fr&theme=dark", expected="Canvas2D: Multiple readback")
    middle = """(canvas) => {
        const { data } = canvas.getContext('2d').getImageData(canvas.width - 4, canvas.height - 4, 1, 1)
        return data[0]
    }"""
    matrix = page.locator("section.weights canvas")
    assert matrix.evaluate(middle) < 128
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "light"
    # The page draws anew when its medium changes, which is a moment later.
    page.wait_for_function(f"canvas => ({middle})(canvas) > 128", arg=matrix.element_handle())
    assert not page.get_by_role("button", name="Copier en Python").is_visible()
    assert not page.get_by_role("button", name="Annuler").is_visible()
