"""Two attentions that share layer and kind are told apart by name, as the two towers of CLIP must be."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from regard.errors import InvalidArgument
from regard.record.recording import Axis, Provenance, Recording
from regard.record.site import Site
from regard.record.tokens import numbered


def site(name: str, layer: int = 0, kind: str = "self", seed: int = 0) -> Site:
    random = torch.Generator().manual_seed(seed)
    query, key = (torch.randn(1, 2, 5, 4, generator=random) for _ in range(2))
    return Site(name, layer, kind, query, key, scale=0.5)


@pytest.fixture
def towers() -> Recording:
    """Layer 0 of two towers, and one module that ran twice."""
    sites = (site("text.0", seed=1), site("vision.0", seed=2), site("shared", 1), site("shared", 2))
    return Recording(sites, {"text": Axis((numbered(5),), (range(5),))}, Provenance("towers", "Towers"))


def test_a_name_is_enough(towers: Recording) -> None:
    text, vision = (towers.weights(site=f"{tower}.0") for tower in ("text", "vision"))
    assert not torch.equal(text, vision)
    assert torch.equal(towers.rows(site="vision.0", row=3, head=1), vision[1, 3])
    assert torch.equal(towers.top_k(site="vision.0", row=3, k=1).weights[:, 0], vision[:, 3].amax(-1))
    assert torch.equal(towers.overview(site="vision.0", size=5), vision)
    assert towers.shape(site="text.0") == (2, 5, 5)


def test_layer_and_kind_that_two_share_are_refused_with_the_names(towers: Recording) -> None:
    with pytest.raises(
        InvalidArgument, match=r"layer 0 has several .* site= one of 'text\.0', 'vision\.0'\."
    ):
        towers.weights(layer=0)
    with pytest.raises(InvalidArgument, match=r"site= one of 'text\.0', 'vision\.0'\."):
        towers.weights(layer=0, kind="self")


def test_a_module_that_ran_twice_needs_its_layer_as_well(towers: Recording) -> None:
    assert towers.weights(site="shared", layer=2).shape == (2, 5, 5)
    with pytest.raises(InvalidArgument, match=r"'shared' ran as layer 1, 2; say which with layer=; got None"):
        towers.weights(site="shared")


def test_what_is_missing_or_unknown_is_said(towers: Recording) -> None:
    with pytest.raises(InvalidArgument, match=r"say which attention: layer= .* or site="):
        towers.weights()
    with pytest.raises(InvalidArgument, match=r"such as 'text\.0', 'shared'; got 'audio'"):
        towers.weights(site="audio")
    both = replace(towers, sites=(site("a"), site("b", kind="cross")))
    with pytest.raises(InvalidArgument, match="kind= one of 'self', 'cross'"):
        both.weights(layer=0)


def test_a_site_is_printed_in_one_line_without_numbers_of_tensors(towers: Recording) -> None:
    assert repr(towers.sites[1]) == (
        "Site('vision.0', layer 0, self, heads 2, items 1, 5 × 5, interface, max_error nan)"
    )
    assert len(repr(towers)) < 120
