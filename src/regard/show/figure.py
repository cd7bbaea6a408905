"""A Picture drawn as a matplotlib Figure: rows are queries, columns are keys, sizes follow the tokens.

Only matplotlib's object interface is used: no window, no global state, any number of figures at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.colors import BoundaryNorm, ListedColormap, Normalize
from matplotlib.figure import Figure

from regard.errors import InvalidArgument
from regard.show.labels import MOST_CHARACTERS, labels
from regard.show.ramp import HIGH, LOW, ramp
from regard.words import get_language, say

if TYPE_CHECKING:
    from jaxtyping import Float
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage

MOST_LABELS = 128
MOST_NUMBERS = 64
_POINTS = 72.0  # per inch


@dataclass(frozen=True)
class Picture:
    """What is drawn: one or several matrices of the same shape, with the words around them."""

    values: Float[np.ndarray, "h q k"]
    panels: tuple[str, ...]  # a title for each matrix; "" for none
    queries: tuple[str, ...] | None
    keys: tuple[str, ...] | None
    title: str
    note: str = ""  # provenance, and what a cell stands for
    is_mask: bool = False
    pooled: tuple[int, int] = (1, 1)  # rows and columns of the original in one cell


def draw(picture: Picture, *, numbers: bool = False, figure: Figure | None = None) -> Figure:
    """The picture as a figure; into `figure` when one is given (a window's), else into a new one."""
    count, queries, keys = picture.values.shape
    if not picture.values.size:
        raise InvalidArgument(
            f"there is nothing to draw: the weights have the shape {(count, queries, keys)}."
        )
    if numbers and max(queries, keys) > MOST_NUMBERS:
        raise InvalidArgument(say("errors.too_many_numbers", most=MOST_NUMBERS, got=max(queries, keys)))
    words = [*(picture.queries or ()), *(picture.keys or ())]
    shown, families = labels(words, most=MOST_CHARACTERS)
    rows_of_words, columns_of_words = shown[: len(picture.queries or ())], shown[len(picture.queries or ()) :]
    cell = _cell(picture, numbers)
    figure, axes = _panels(figure, picture, cell, margin=_inches(shown, cell))
    colours, norm = _colours(picture)
    for panel, axis in enumerate(axes):
        image = axis.imshow(picture.values[panel], cmap=colours, norm=norm, interpolation="nearest")
        axis.set_title(picture.panels[panel], fontsize=9)
        if _has_labels(picture, cell):
            _label(axis, rows_of_words, columns_of_words, cell, families)
        else:
            _number(axis, picture, bare=count > 1)
        if numbers:
            _write(axis, picture.values[panel], cell, norm.vmax)
    if count == 1:
        axes[0].xaxis.set_label_position("top")
        axes[0].set_xlabel(say("figure.keys"), fontsize=9)
        axes[0].set_ylabel(say("figure.queries"), fontsize=9)
    _scale(figure, image, axes, picture.is_mask)
    for write, text, points in ((figure.suptitle, picture.title, 11), (figure.supxlabel, picture.note, 7)):
        (line,), fonts = labels([text])
        write(line, fontsize=points, fontfamily=fonts, parse_math=False)
    return figure


def _cell(picture: Picture, numbers: bool) -> float:
    """Side of a cell in inches: large for a few tokens, just legible for a hundred."""
    longest: int = max(*picture.values.shape[1:], 1)
    if picture.values.shape[0] > 1:
        return min(0.3, max(2.2 / longest, 0.005))
    least = 0.3 if numbers else 0.13 if longest <= MOST_LABELS else 0.01
    return min(0.5, max(5.0 / longest, least))


def _has_labels(picture: Picture, cell: float) -> bool:
    return picture.queries is not None and picture.pooled == (1, 1) and _font(cell) >= 4


def _font(cell: float) -> float:
    """Size in points of the words beside cells of this side."""
    return min(10.0, 0.65 * cell * _POINTS)


def _inches(words: list[str], cell: float) -> float:
    """About how long the longest word is."""
    return 0.62 * _font(cell) / _POINTS * max(map(len, words), default=1)


def _panels(figure: Figure | None, picture: Picture, cell: float, margin: float) -> tuple[Figure, list[Axes]]:
    """A figure of the right size with axes for every matrix."""
    count, queries, keys = picture.values.shape
    columns = math.ceil(math.sqrt(count))
    rows = math.ceil(count / columns)
    margin = margin if _has_labels(picture, cell) else 0.4
    figure = figure or Figure()
    figure.set_layout_engine("constrained")
    width = columns * (keys * cell + margin + 0.3) + 1.3
    height = rows * (queries * cell + margin + 0.4) + 1.1
    figure.set_size_inches(max(width, 4.0), max(height, 3.0))
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for empty in axes[count:]:
        empty.set_axis_off()
    return figure, list(axes[:count])


def _colours(picture: Picture) -> tuple[ListedColormap, Normalize]:
    if picture.is_mask:
        return ListedColormap([LOW, HIGH]), BoundaryNorm([-0.5, 0.5, 1.5], 2)
    largest = float(picture.values.max()) if picture.values.size else 0.0
    return ramp(), Normalize(0.0, largest if largest > 0 else 1.0)


def _label(axis: Axes, rows: list[str], columns: list[str], cell: float, families: list[str]) -> None:
    """Every row and column with its token; upright only where words do not fit side by side."""
    upright = _inches(columns, cell) > 0.95 * cell
    axis.tick_params(length=0, pad=3, top=True, labeltop=True, bottom=False, labelbottom=False)
    style: dict[str, Any] = {"fontsize": _font(cell), "fontfamily": families, "parse_math": False}
    axis.set_yticks(range(len(rows)), labels=rows, **style)
    axis.set_xticks(range(len(columns)), labels=columns, rotation=90 if upright else 0, **style)


def _number(axis: Axes, picture: Picture, *, bare: bool) -> None:
    """Positions instead of tokens, where tokens could not be read."""
    axis.tick_params(
        length=2, top=True, labeltop=True, bottom=False, labelbottom=False, labelsize=6 if bare else 8
    )
    for scale, length, block in zip(
        (axis.yaxis, axis.xaxis), picture.values.shape[1:], picture.pooled, strict=True
    ):
        step = _round_step(length * block / (4 if bare else 10))
        positions = np.arange(0, length * block, step)
        scale.set_ticks(
            positions / block - 0.5 + 0.5 / block, labels=[str(position) for position in positions]
        )


def _round_step(step: float) -> int:
    """The next of 1, 2, 5, 10, 20, 50 …"""
    power = 10 ** math.floor(math.log10(max(step, 1)))
    return int(next(power * lead for lead in (1, 2, 5, 10) if power * lead >= step))


def _write(axis: Axes, values: Float[np.ndarray, "q k"], cell: float, largest: float | None) -> None:
    """The value in every cell, in the colour that stands out."""
    points = min(9.0, 0.36 * cell * _POINTS)
    for (row, column), value in np.ndenumerate(values):
        text = f"{value:.2f}"
        if get_language() == "fr":
            text = text.replace(".", ",")
        colour = LOW if value > 0.45 * (largest or 1.0) else HIGH
        axis.text(column, row, text, ha="center", va="center", fontsize=points, color=colour)


def _scale(figure: Figure, image: AxesImage, axes: list[Axes], is_mask: bool) -> None:
    """The bar that says what a colour means."""
    bar = figure.colorbar(image, ax=axes, shrink=0.8, aspect=24, pad=0.02)
    bar.outline.set_linewidth(0.5)
    if is_mask:
        bar.minorticks_off()
        bar.set_ticks([0, 1], labels=[say("figure.may_not"), say("figure.may")])
    else:
        bar.set_label(say("figure.weight"), fontsize=9)
    bar.ax.tick_params(length=2, labelsize=8)
