"""Some heads, all weights, the largest of each row: what is kept is exact, and numbered as the model does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import regard
from choices import IDS, MODELS, PIXELS, bert, gpt_oss, llama, same, swin
from regard.attend import masks
from regard.attend.attention import attention
from regard.errors import InvalidArgument
from regard.record.heads import Cut


@pytest.mark.parametrize("heads", [[1], [0, 1], [0, 2], [0, 1, 2], [3], [0, 1, 2, 3]])
@pytest.mark.parametrize("name", ["llama", "window", "bert", "t5"])
def test_heads_keep_their_numbers_and_their_keys(name: str, heads: list[int], tmp_path: Path) -> None:
    make, inputs = MODELS[name]
    model = make()
    whole, part = regard.record(model, inputs), regard.record(model, inputs, heads=heads)
    part.save(tmp_path / "part.regard")
    for recording in (part, regard.open(tmp_path / "part.regard")):
        same(recording, whole)
        for site in recording.sites:
            assert (site.head_numbers, site.heads, site.all_heads) == (tuple(heads), len(heads), 4)
            of = {"layer": site.layer, "kind": site.kind}
            all_kept = recording.weights(**of)
            torch.testing.assert_close(all_kept, whole.weights(**of)[heads], rtol=0, atol=1e-6)
            torch.testing.assert_close(
                recording.overview(size=5, **of), whole.overview(size=5, **of)[heads], rtol=0, atol=1e-6
            )
    for missing in {0, 1, 2, 3} - set(heads):
        with pytest.raises(InvalidArgument, match=rf"kept, {', '.join(map(str, heads))}; got {missing}"):
            part.weights(layer=0, kind=part.kinds[0], head=missing)
    with pytest.raises(InvalidArgument, match=r"head must lie in \[0, 4\); got 4"):
        part.weights(layer=0, kind=part.kinds[0], head=4)


def test_key_heads_are_repeated_only_where_groups_are_uneven() -> None:
    assert Cut((0, 2, 4), 6, 3).key_numbers == (0, 1, 2)
    assert Cut((0, 1, 2), 6, 3).key_numbers == (0, 0, 1)
    assert Cut((0, 1, 2, 3), 6, 3).key_numbers == (0, 1)
    assert Cut((0, 1, 2, 3, 4, 5, 6, 7, 8, 9), 24, 3).key_numbers == (0, 0, 0, 0, 1)
    assert Cut((5,), 6, 3).key_numbers == (2,)


def test_attentions_without_the_wanted_heads_are_left_out() -> None:
    whole, part = regard.record(swin(), PIXELS), regard.record(swin(), PIXELS, heads=[3])
    assert whole.layers == (0, 1, 2, 3)
    assert part.layers == (2, 3)  # the others have two heads, and are counted all the same
    same(part, whole)


def test_rules_and_biases_of_single_heads_are_cut_with_them() -> None:
    class Own(nn.Module):
        def forward(self, q: Tensor, bias: Tensor, rule: Any) -> Any:
            return attention(q, q, q, bias=bias, mask=rule)

    torch.manual_seed(0)
    q, bias = torch.randn(1, 4, 8, 8), torch.randn(1, 4, 8, 8)
    seen = torch.rand(1, 4, 8, 8) > 0.3
    blocks = masks.blocks(layout=torch.rand(4, 4, 4) > 0.3, size=2)
    rule = masks.dense(seen) | ~masks.causal() | blocks
    model = Own()
    whole, part = (regard_of(model, choice, q, bias, rule) for choice in ({}, {"heads": [1, 3]}))
    same(part, whole)
    assert part.sites[0].bias is not None
    assert part.sites[0].bias.shape[1] == 2


def regard_of(model: nn.Module, choice: dict[str, Any], *args: Any) -> regard.Recording:
    with torch.no_grad(), regard.Recorder(model, **choice) as recorder:
        model(*args)
    return recorder.recording


def test_weights_of_a_model_with_sinks(tmp_path: Path) -> None:
    model = gpt_oss()
    whole = regard.record(model, {"input_ids": IDS})
    regard.record(model, {"input_ids": IDS}, keep="weights", heads=[1, 2]).save(tmp_path / "w.regard")
    regard.record(model, {"input_ids": IDS}, keep="top_k", k=4).save(tmp_path / "t.regard")
    kept, largest = regard.open(tmp_path / "w.regard"), regard.open(tmp_path / "t.regard")
    same(kept, whole)
    for layer in whole.layers:
        for head in (1, 2):
            sink = whole.sink(layer=layer, head=head)
            assert sink.min() > 0
            for other in (kept, largest):
                torch.testing.assert_close(other.sink(layer=layer, head=head), sink, rtol=0, atol=1e-6)
    small = regard.record(model, {"input_ids": IDS}, keep="weights", dtype=torch.float16)
    assert (small.weights(layer=1) - whole.weights(layer=1)).abs().max() < 5e-3


def test_the_largest_weights_are_kept_exactly_and_the_rest_is_unknown(tmp_path: Path) -> None:
    model = bert()
    whole = regard.record(model, {"input_ids": IDS})
    regard.record(model, {"input_ids": IDS}, keep="top_k", k=5).save(tmp_path / "t.regard")
    kept = regard.open(tmp_path / "t.regard")
    worst = 0.0
    for layer in whole.layers:
        full, part = whole.weights(layer=layer), kept.weights(layer=layer)
        best = full.topk(5, -1)
        expected = torch.zeros_like(full).scatter_(-1, best.indices, best.values)
        torch.testing.assert_close(part, expected, rtol=0, atol=1e-6)
        worst = max(worst, float((1 - best.values.sum(-1)).max()))
        found, top = kept.top_k(layer=layer, row=3, k=5), whole.top_k(layer=layer, row=3, k=5)
        assert torch.equal(found.positions, top.positions)
        torch.testing.assert_close(found.weights, top.weights, rtol=0, atol=1e-6)
        torch.testing.assert_close(
            kept.weights(layer=layer, head=2, rows=[5, 1], cols=slice(2, 9)), expected[2, [5, 1], 2:9]
        )
        torch.testing.assert_close(
            kept.overview(layer=layer, size=4),
            expected.reshape(4, 4, 3, 4, 3).amax((2, 4)),
            rtol=1e-5,
            atol=0,
        )
    (note,) = (note for note in kept.provenance.notes if "largest weights" in note)
    said = re.search(r"only the 5 largest .* at most (\S+) of a row", note)
    assert said is not None
    assert float(said[1]) == pytest.approx(worst, rel=0.01)
    with pytest.raises(InvalidArgument, match=r"k must be at most 5, .*got 6\. Record with a larger k"):
        kept.top_k(layer=0, row=3, k=6)
    site = kept.sites[0]
    assert site.largest is not None
    assert site.largest.positions.dtype == torch.int32
    assert site.query.numel() + site.key.numel() == 0


@pytest.mark.parametrize(
    "choice",
    [
        {"layers": [1], "heads": [0, 1, 2]},
        {"keep": "top_k", "k": 64},
        {"keep": "weights", "layers": [0]},
        {"layers": [0], "kinds": ["causal"]},
    ],
)
@pytest.mark.parametrize("generate", [None, 4])
def test_what_is_chosen_can_go_straight_to_a_file(
    choice: dict[str, Any], generate: int | None, tmp_path: Path
) -> None:
    model = llama()
    whole = regard.record(model, {"input_ids": IDS}, generate=generate)
    part = regard.record(model, {"input_ids": IDS}, generate=generate, path=tmp_path / "x.regard", **choice)
    same(part, whole)
    same(regard.open(tmp_path / "x.regard"), whole)
    assert [path.name for path in tmp_path.iterdir()] == ["x.regard"]
    assert part.layers == tuple(choice.get("layers", whole.layers))
