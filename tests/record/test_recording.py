"""What a Recording answers: rectangles, rows, the most looked-at keys, overviews; and what it refuses."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import regard
from regard.errors import InvalidArgument


def test_rows_sum_to_one(fox: Any) -> None:
    for layer in fox.layers:
        weights = fox.weights(layer=layer)
        assert (weights >= 0).all()
        torch.testing.assert_close(weights.sum(-1), torch.ones(12, 12))


def test_shapes_follow_what_is_asked_for(fox: Any) -> None:
    assert fox.shape(2) == (12, 12, 12)
    assert fox.weights(layer=2).shape == (12, 12, 12)
    assert fox.weights(layer=2, head=5).shape == (12, 12)
    assert fox.weights(layer=2, head=5, rows=slice(3, 9)).shape == (6, 12)
    assert fox.weights(layer=2, head=5, rows=slice(3, 9), cols=[1, 4]).shape == (6, 2)
    assert fox.weights(layer=2, head=5, rows=3).shape == (12,)
    assert fox.weights(layer=2, rows=3, cols=-1).shape == (12,)
    assert fox.weights(layer=2, head=5, rows=slice(4, 4)).shape == (0, 12)
    assert fox.weights(layer=2, head=5, rows=slice(None, None, 5)).shape == (3, 12)


def test_rectangles_of_any_split_join_without_a_seam(fox: Any) -> None:
    cuts = st.lists(st.integers(0, 12), max_size=4)

    @settings(deadline=None)
    @given(rows=cuts, cols=cuts, head=st.one_of(st.none(), st.integers(0, 11)))
    def joins(rows: list[int], cols: list[int], head: int | None) -> None:
        edges_r, edges_c = sorted({0, 12, *rows}), sorted({0, 12, *cols})
        stripes = []
        for top, bottom in pairwise(edges_r):
            parts = [
                fox.weights(layer=3, head=head, rows=slice(top, bottom), cols=slice(left, right))
                for left, right in pairwise(edges_c)
            ]
            stripes.append(torch.cat(parts, dim=-1))
        joined = torch.cat(stripes, dim=-2)
        # Products of different shapes add up in different orders: logits near 10 have steps of 1e-6.
        torch.testing.assert_close(joined, fox.weights(layer=3, head=head), atol=4e-6, rtol=0)

    joins()


def test_indices_choose_what_they_choose_of_the_whole(fox: Any) -> None:
    whole = fox.weights(layer=1, head=2)
    for rows, cols in (
        ([7, 2, 2], slice(1, 9, 3)),
        (torch.tensor([0, 11]), -2),
        (slice(None, None, -1), None),
    ):
        ours = fox.weights(layer=1, head=2, rows=rows, cols=cols)
        indexed = whole.flip(0) if isinstance(rows, slice) else whole[rows]
        torch.testing.assert_close(ours, indexed if cols is None else indexed[:, cols], atol=4e-6, rtol=0)


def test_rows_is_weights_of_these_rows(fox: Any) -> None:
    torch.testing.assert_close(
        fox.rows(layer=4, head=1, row=3), fox.weights(layer=4, head=1)[3], atol=4e-6, rtol=0
    )
    assert fox.rows(layer=4, row=[3, 4]).shape == (12, 2, 12)


def test_top_k_are_the_largest_of_the_row(fox: Any) -> None:
    row = fox.weights(layer=4, head=1, rows=3)
    best = fox.top_k(layer=4, head=1, row=3, k=4)
    assert best.positions.tolist() == row.argsort(descending=True)[:4].tolist()
    assert best.weights.tolist() == row.sort(descending=True).values[:4].tolist()
    assert fox.top_k(layer=4, row=3, k=99).positions.shape == (12, 12)


@pytest.mark.parametrize("size", [1, 3, 5, 12, 64])
def test_overview_pools_the_weights(fox: Any, size: int) -> None:
    whole = fox.weights(layer=2, head=5)
    block = -(-12 // size)
    cells = [[whole[r : r + block, c : c + block] for c in range(0, 12, block)] for r in range(0, 12, block)]
    largest = fox.overview(layer=2, head=5, size=size)
    mean = fox.overview(layer=2, head=5, size=size, reduce="mean")
    assert largest.shape == mean.shape == (len(cells), len(cells))
    assert len(cells) <= size
    torch.testing.assert_close(
        largest, torch.tensor([[c.max() for c in row] for row in cells]), atol=4e-6, rtol=0
    )
    torch.testing.assert_close(
        mean, torch.tensor([[c.mean() for c in row] for row in cells]), atol=4e-6, rtol=0
    )


def test_overview_of_all_heads_is_the_overviews_of_each(fox: Any) -> None:
    every = fox.overview(layer=2, size=4)
    for head in range(12):
        torch.testing.assert_close(every[head], fox.overview(layer=2, head=head, size=4), atol=4e-6, rtol=0)


def test_padding_of_an_item_is_nowhere(minilm: Any) -> None:
    texts = ["One.", "The quick brown fox jumps over the lazy dog."]
    for side in ("left", "right"):
        batch = regard.record(minilm, texts, padding=side)
        assert batch.shape(0, item=0) == (12, 4, 4)
        assert batch.tokens(0).texts == ("[CLS]", "one", ".", "[SEP]")
        assert batch.overview(layer=0, head=0, item=0).shape == (4, 4)
        torch.testing.assert_close(batch.weights(layer=5, item=0).sum(-1), torch.ones(12, 4))
    alone = regard.record(minilm, texts[0])
    right = regard.record(minilm, texts)
    # Padding on the right moves no position: the short text attends as it does alone.
    torch.testing.assert_close(alone.weights(layer=5), right.weights(layer=5, item=0), atol=1e-5, rtol=0)


def test_lse_is_computed_once_for_the_rows_that_are_looked_at(minilm: Any) -> None:
    recording = regard.record(minilm, "One two three four.")
    site = recording.site(0)
    assert site.lse_if_known is None
    recording.weights(layer=0, head=3, rows=2)
    assert site._lse_known is not None
    assert site._lse_known.sum() == 1
    expected = torch.logsumexp((site.query @ site.key.transpose(2, 3)) * site.scale, -1)
    torch.testing.assert_close(site.lse, expected, atol=1e-5, rtol=0)
    assert site.lse_if_known is not None


def test_provenance_says_where_a_recording_comes_from(fox: Any) -> None:
    origin = fox.provenance
    assert origin.text == ("The quick brown fox jumps over the lazy dog.",)
    assert (origin.model, origin.model_class, origin.licence) == ("minilm", "BertModel", "Apache-2.0")
    assert origin.kernels == ("sdpa",)
    assert origin.doors == ("interface",)
    assert origin.dtype == "float32"
    assert origin.device == "cpu"
    assert set(origin.versions) == {"regard", "torch", "transformers"}
    assert origin.created.endswith("Z")
    assert "minilm" in repr(fox)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"layer": 6}, "layer must be one of 0 … 5; got 6"),
        ({"layer": -1}, "layer must be one of 0 … 5; got -1"),
        ({"layer": 0, "head": 12}, r"head must lie in \[0, 12\); got 12"),
        ({"layer": 0, "head": -1}, r"head must lie in \[0, 12\); got -1"),
        ({"layer": 0, "rows": 12}, r"rows must lie in \[0, 12\); got 12"),
        ({"layer": 0, "rows": slice(3, 600)}, r"rows must lie in \[0, 12\); got 3:600"),
        ({"layer": 0, "cols": [0, 99]}, r"cols must lie in \[0, 12\); got 99"),
        ({"layer": 0, "cols": "ab"}, "cols must be a position, a slice or a sequence of positions; got str"),
        ({"layer": 0, "rows": 1.5}, "rows must be a position, a slice or a sequence of positions; got float"),
        (
            {"layer": 0, "rows": [True]},
            "rows must be a position, a slice or a sequence of positions; got list",
        ),
        ({"layer": 0, "kind": "cross"}, "kind must be one of self; got 'cross'"),
        ({"layer": 0, "item": 1}, r"item must lie in \[0, 1\); got 1"),
    ],
)
def test_wrong_arguments_are_refused_with_what_was_expected(
    fox: Any, asked: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidArgument, match=message):
        fox.weights(**asked)


def test_wrong_arguments_of_the_other_questions_are_refused(fox: Any) -> None:
    with pytest.raises(InvalidArgument, match="reduce must be 'max' or 'mean'; got 'min'"):
        fox.overview(layer=0, reduce="min")
    with pytest.raises(InvalidArgument, match="size must be at least 1; got 0"):
        fox.overview(layer=0, size=0)
    with pytest.raises(InvalidArgument, match="k must be at least 1; got 0"):
        fox.top_k(layer=0, row=0, k=0)
    with pytest.raises(InvalidArgument, match="side must be 'query' or 'key'; got 'value'"):
        fox.tokens(side="value")
