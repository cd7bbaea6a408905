"""Figures: what is drawn is what was given, with labels that can be read, and no state is left behind."""

from __future__ import annotations

import subprocess
import sys
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

import regard
from regard.errors import InvalidArgument, OutputError
from regard.show.heatmap import MOST_CELLS, save
from regard.show.labels import labels


def drawn(figure: Figure, panel: int = 0) -> np.ndarray:
    return np.asarray(figure.axes[panel].images[0].get_array())


def texts(figure: Figure, axis: str, panel: int = 0) -> list[str]:
    return [label.get_text() for label in getattr(figure.axes[panel], f"get_{axis}ticklabels")()]


def test_rows_are_queries_columns_are_keys_and_values_are_the_weights(small: Any) -> None:
    figure = regard.heatmap(small, layer=1, head=2)
    weights = small.weights(layer=1, head=2).numpy()
    np.testing.assert_array_equal(drawn(figure), weights)
    assert texts(figure, "y") == texts(figure, "x") == list(small.tokens().texts)
    axes = figure.axes[0]
    assert axes.yaxis_inverted()  # the first query is at the top
    assert "query" in axes.get_ylabel()
    assert "key" in axes.get_xlabel()


def test_title_note_and_scale_say_what_one_sees(small: Any) -> None:
    figure = regard.heatmap(small, layer=1, head=2)
    assert figure.get_suptitle() == "by hand · layer 1 · head 2"
    assert figure.get_supxlabel() == "sdpa · float32 · recomputed and checked, max error 2e-07"
    assert figure.axes[-1].get_ylabel() == "weight (0 to 1)"


def test_without_a_head_all_heads_stand_side_by_side_on_one_scale(small: Any) -> None:
    figure = regard.heatmap(small, layer=0)
    panels = [axes for axes in figure.axes if axes.images]
    assert [axes.get_title() for axes in panels] == ["head 0", "head 1", "head 2"]
    assert len({axes.images[0].get_clim() for axes in panels}) == 1
    np.testing.assert_array_equal(drawn(figure, 1), small.weights(layer=0, head=1).numpy())


def test_numbers_are_the_values_to_two_digits(small: Any) -> None:
    figure = regard.heatmap(small, layer=0, head=0, numbers=True)
    weights = small.weights(layer=0, head=0)
    written = [text.get_text() for text in figure.axes[0].texts]
    assert written == [f"{value:.2f}" for value in weights.ravel().tolist()]


def test_numbers_are_refused_where_nobody_could_read_them() -> None:
    with pytest.raises(InvalidArgument, match="at most 64 × 64 cells, and there are 65 tokens"):
        regard.heatmap(torch.eye(65), numbers=True)


@pytest.mark.parametrize("count", [10, 100])
def test_labels_are_readable_and_do_not_touch(count: int) -> None:
    figure = regard.heatmap(torch.eye(count), tokens=[f"token{i}" for i in range(count)])
    figure.draw_without_rendering()
    labels = figure.axes[0].get_yticklabels()
    assert len(labels) == count
    assert labels[0].get_fontsize() >= 6
    boxes = [label.get_window_extent() for label in labels]
    assert all(above.y0 >= below.y1 for above, below in pairwise(boxes))
    columns = [label.get_window_extent() for label in figure.axes[0].get_xticklabels()]
    assert all(left.x1 <= right.x0 for left, right in pairwise(columns))


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_hostile_tokens_are_drawn_as_text_without_a_warning(
    hostile: Any, tmp_path: Path, suffix: str
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = regard.heatmap(hostile, layer=0, head=0)
        path = save(figure, tmp_path / f"figure.{suffix}")
    signatures = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}
    assert path.read_bytes().startswith(signatures[suffix])
    assert "$x^2$" in texts(figure, "y")


def test_characters_that_no_font_has_are_named_and_long_tokens_cut() -> None:
    shown, fonts = labels(["a\x00b", "x" * 40, "\U000f0000"], most=24)
    assert shown == ["aU+0000b", "x" * 23 + "…", "U+F0000"]
    assert fonts[0] == "DejaVu Sans"


def test_long_inputs_are_pooled_to_the_largest_weight_and_the_figure_says_so(by_hand: Any) -> None:
    count = MOST_CELLS + 88
    recording = by_hand(["a"] * count, layers=1, heads=1)
    figure = regard.heatmap(recording, layer=0, head=0)
    weights = recording.weights(layer=0, head=0)
    assert max(drawn(figure).shape) <= MOST_CELLS
    assert np.isclose(drawn(figure).max(), float(weights.max()), rtol=1e-5)
    assert "largest of 2 × 2 weights" in figure.get_supxlabel()
    tensor = regard.heatmap(weights)
    np.testing.assert_allclose(drawn(tensor), drawn(figure), rtol=1e-5, atol=1e-9)


def test_a_mask_rule_is_drawn_in_two_colours() -> None:
    figure = regard.heatmap(regard.masks.causal(), lengths=(4, 6))
    assert (
        drawn(figure).tolist()
        == regard.masks.causal().tile(slice(0, 4), slice(0, 6), (4, 6)).float().tolist()
    )
    assert texts(figure, "y", -1) == ["may not", "may attend"]


def test_shapes_heads_and_labels_that_do_not_fit_are_named(small: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"got the shape \(1, 2, 3, 3\)\. Choose one item"):
        regard.heatmap(torch.zeros(1, 2, 3, 3))
    with pytest.raises(InvalidArgument, match=r"head must lie in \[0, 2\); got 2"):
        regard.heatmap(torch.zeros(2, 3, 3), head=2)
    with pytest.raises(InvalidArgument, match="one text for each of 3 positions; got 2"):
        regard.heatmap(torch.zeros(3, 3), tokens=["a", "b"])
    with pytest.raises(InvalidArgument, match="nothing to draw"):
        regard.heatmap(torch.zeros(0, 0))
    with pytest.raises(InvalidArgument, match="layer"):
        regard.heatmap(small, layer=7)
    with pytest.raises(InvalidArgument, match="must end in one of: png, svg, pdf"):
        save(regard.heatmap(torch.eye(2)), "figure.docx")
    with pytest.raises(OutputError, match="cannot be written"):
        save(regard.heatmap(torch.eye(2)), "/nowhere/figure.png")


def test_numpy_weights_with_different_labels_for_rows_and_columns() -> None:
    figure = regard.heatmap(np.array([[0.5, 0.5, 0.0]]), tokens=["q"], key_tokens=["a", "b", "c"])
    assert texts(figure, "y") == ["q"]
    assert texts(figure, "x") == ["a", "b", "c"]


def test_drawing_opens_no_window_and_touches_no_global_figure() -> None:
    code = (
        "import sys, torch, regard; regard.heatmap(torch.eye(3)); "
        "assert 'matplotlib.pyplot' not in sys.modules, 'pyplot was imported'"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
