"""Reading a view in a browser."""

from __future__ import annotations

from typing import Any


def drawn(page: Any) -> int:
    """How many lines the canvas shows."""
    return int(page.get_by_test_id("lines-canvas").get_attribute("data-drawn"))


def wait_for_drawn(page: Any, count: int) -> None:
    page.locator(f'[data-testid="lines-canvas"][data-drawn="{count}"]').wait_for()


def inked(page: Any) -> int:
    """How many pixels of the lines' canvas are not empty."""
    return int(
        page.get_by_test_id("lines-canvas").evaluate(
            "canvas => canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height)"
            ".data.filter((value, at) => at % 4 === 3 && value > 0).length"
        )
    )


def weights_beside(page: Any, side: str = "keys") -> list[float]:
    """The numbers beside the tokens of one column, as exact as the page knows them."""
    found: list[float] = page.get_by_test_id(side).evaluate(
        "box => [...box.querySelectorAll('[role=option]')]"
        ".map((option) => Number(option.querySelector('.weight').style.getPropertyValue('--weight')))"
    )
    return found


def tokens(page: Any, side: str = "queries") -> list[str]:
    found: list[str] = page.get_by_test_id(side).locator(".word").all_text_contents()
    return found


def lock(page: Any, index: int, side: str = "query") -> None:
    """Choose a token, then take the pointer away."""
    page.locator(f"#{side}-{index}").click()
    page.mouse.move(5, 5)
