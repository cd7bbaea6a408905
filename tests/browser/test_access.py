"""Everyone can use the view: axe finds nothing in light and dark, in both languages, wide and narrow."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from page import lock

Open = Callable[..., Any]
AXE = Path(__file__).parents[2] / "web" / "node_modules" / "axe-core" / "axe.min.js"


def violations(page: Any) -> list[str]:
    """What axe finds, one line a violation."""
    page.add_script_tag(content=AXE.read_text(encoding="utf-8"))
    found = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    assert found["passes"], "axe looked at nothing"
    return [
        f"{violation['id']}: {violation['help']}: {node['html'][:200]}"
        for violation in found["violations"]
        for node in violation["nodes"]
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("language", ["en", "fr"])
def test_axe_reports_no_violation(visit: Open, link: str, scheme: str, language: str) -> None:
    page = visit(f"{link}#layer=2&lang={language}", color_scheme=scheme)
    page.locator('[data-testid="lines-canvas"]:not([data-drawn="0"])').wait_for()
    assert violations(page) == []
    lock(page, 3)
    assert violations(page) == []
    page.get_by_test_id("edit").click()
    page.get_by_test_id("as-pair").check()
    assert violations(page) == []


def test_axe_reports_no_violation_on_a_phone(visit: Open, link: str) -> None:
    page = visit(f"{link}#layer=2", width=400, height=800, has_touch=True)
    assert violations(page) == []


def test_a_phone_scrolls_in_one_direction_only(visit: Open, link: str) -> None:
    page = visit(link, width=400, height=800, has_touch=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= 400


def test_a_thumb_locks_a_token(visit: Open, link: str) -> None:
    page = visit(f"{link}#layer=2", width=400, height=800, has_touch=True)
    page.locator("#query-2").tap()
    assert page.locator("#query-2").get_attribute("aria-selected") == "true"
    page.get_by_test_id("release").tap()
    assert page.locator("#query-2").get_attribute("aria-selected") == "false"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_theme_can_be_chosen(visit: Open, link: str, theme: str) -> None:
    page = visit(link, color_scheme="light" if theme == "dark" else "dark")
    page.get_by_test_id(f"theme-{theme}").click()
    ink = page.evaluate("getComputedStyle(document.body).color")
    lightness = sum(map(int, re.findall(r"\d+", ink)[:3])) / 3
    assert (lightness < 128) == (theme == "light")


def test_a_screen_reader_hears_what_is_locked(visit: Open, link: str) -> None:
    page = visit(f"{link}#layer=2&head=5")
    lock(page, 3)
    live = page.get_by_test_id("live")
    live.filter(has_text="brown").wait_for(state="attached")
    assert live.get_attribute("aria-live") or live.get_attribute("role")
