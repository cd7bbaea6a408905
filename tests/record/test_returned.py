"""Models with a softmax of their own are recorded by the weights that they return, if these are weights."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn

import regard
from regard.errors import NothingToRecord, UnfaithfulRecording

SMALL: dict[str, Any] = {
    "vocab_size": 61, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "max_position_embeddings": 40, "initializer_range": 0.3, "pad_token_id": 0,
}  # fmt: skip
FAMILIES: dict[str, tuple[str, dict[str, Any], str]] = {
    "Bloom": ("Bloom", {"vocab_size": 61, "hidden_size": 32, "n_layer": 2, "n_head": 4}, "causal"),
    "Mpt": (
        "Mpt",
        {"vocab_size": 61, "d_model": 32, "n_heads": 4, "n_layers": 2, "max_seq_len": 40},
        "causal",
    ),
    "Deberta": ("Deberta", SMALL, "self"),
    "DebertaV2": ("DebertaV2", {**SMALL, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]}, "self"),
    "XLNet": ("XLNet", {"vocab_size": 61, "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 48}, "self"),
    "MPNet": ("MPNet", SMALL, "self"),
}
IDS = torch.randint(3, 60, (2, 9), generator=torch.Generator().manual_seed(0))


def build(family: str, **changes: Any) -> Any:
    name, values, _ = FAMILIES[family]
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**{**values, **changes})
    return getattr(transformers, f"{name}Model")(config).eval()


@pytest.mark.parametrize("family", FAMILIES)
def test_every_weight_is_the_models_own(family: str) -> None:
    model = build(family)
    recording = regard.record(model, {"input_ids": IDS})
    assert recording.provenance.doors == ("returned",)
    assert "as returned by the model" in recording.proof.note
    assert recording.proof.rows == 0
    with torch.no_grad():
        own = model(IDS, output_attentions=True).attentions
    assert recording.layers == (0, 1)
    assert recording.kinds == (FAMILIES[family][2],)
    for layer, expected in enumerate(own):
        for item in range(2):
            weights = recording.weights(layer=layer, item=item)
            torch.testing.assert_close(weights, expected[item], rtol=1e-5, atol=1e-6)
    assert len({site.name for site in recording.sites}) == 2
    assert not any(module._forward_hooks for module in model.modules())


def test_padding_is_dropped_and_rectangles_overviews_and_files_work(tmp_path: Path) -> None:
    model = build("Deberta")
    mask = torch.ones_like(IDS)
    mask[1, 5:] = 0
    recording = regard.record(model, {"input_ids": IDS, "attention_mask": mask})
    weights = recording.weights(layer=1, item=1)
    assert weights.shape == (4, 5, 5)
    torch.testing.assert_close(weights.sum(-1), torch.ones(4, 5))
    torch.testing.assert_close(
        recording.weights(layer=1, item=1, head=2, rows=3, cols=[0, 4]), weights[2, 3, [0, 4]]
    )
    torch.testing.assert_close(recording.overview(layer=1, item=1, head=2, size=5), weights[2])
    recording.save(tmp_path / "deberta.regard")
    again = regard.open(tmp_path / "deberta.regard")
    assert torch.equal(again.weights(layer=1, item=1), weights)
    assert again.provenance.doors == ("returned",)


class PretendingAttention(nn.Module):
    """A model that returns `attentions`, whatever they are."""

    def __init__(self, *attentions: Any) -> None:
        super().__init__()
        self.config = SimpleNamespace(output_attentions=False, model_type="pretending")
        self.attentions = attentions

    def forward(self, x: Tensor, output_attentions: bool = False, return_dict: bool = True) -> Any:
        return SimpleNamespace(last=x, attentions=self.attentions if output_attentions else None)


def test_rows_that_are_no_weights_are_refused() -> None:
    half = torch.full((1, 2, 3, 3), 1 / 6)
    with pytest.raises(UnfaithfulRecording, match=r"rows that are no weights \(a sum is 1.5"):
        regard.record(PretendingAttention(half), torch.zeros(1, 3))
    with pytest.raises(UnfaithfulRecording, match="no weights"):
        regard.record(PretendingAttention(torch.eye(3).expand(1, 1, 3, 3) * 2 - 1 / 3), torch.zeros(1, 3))


@pytest.mark.parametrize("windowed", [torch.full((1, 2, 6, 3), 1 / 3), torch.full((2, 6, 6), 1 / 6)])
def test_what_is_not_of_all_pairs_is_refused(windowed: Tensor) -> None:
    with pytest.raises(NothingToRecord, match="not the weights of all pairs"):
        regard.record(PretendingAttention(windowed), torch.zeros(1, 6))


def test_a_model_that_returns_nothing_is_refused() -> None:
    with pytest.raises(NothingToRecord, match="No attention of PretendingAttention was seen"):
        regard.record(PretendingAttention(), torch.zeros(1, 6))


def test_compressed_attention_that_sums_to_one_is_refused_by_its_name() -> None:
    config = transformers.NystromformerConfig(**SMALL, num_landmarks=3, segment_means_seq_len=9)
    with pytest.raises(NothingToRecord):
        regard.record(transformers.NystromformerModel(config), {"input_ids": IDS})
