"""Tiny random models of the families that share Hugging Face's attention interface."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers

_SMALL: dict[str, Any] = {
    "vocab_size": 61,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 40,
    # Large enough for weights that are far from uniform.
    "initializer_range": 0.3,
    "pad_token_id": 1,
}

FAMILIES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bert": ("BertConfig", "BertModel", _SMALL),
    "minilm-like": ("BertConfig", "BertModel", {**_SMALL, "hidden_size": 48, "num_attention_heads": 12}),
    "roberta": ("RobertaConfig", "RobertaModel", {**_SMALL, "type_vocab_size": 2}),
    "distilbert": (
        "DistilBertConfig",
        "DistilBertModel",
        {
            "vocab_size": 61,
            "dim": 32,
            "n_layers": 3,
            "n_heads": 4,
            "hidden_dim": 48,
            "max_position_embeddings": 40,
            "initializer_range": 0.3,
        },
    ),
    "albert": ("AlbertConfig", "AlbertModel", {**_SMALL, "embedding_size": 16}),
    "electra": ("ElectraConfig", "ElectraModel", {**_SMALL, "embedding_size": 16}),
}


def build(family: str, **changes: Any) -> torch.nn.Module:
    """A tiny random model of a family, the same one every time."""
    config_name, model_name, values = FAMILIES[family]
    torch.manual_seed(0)
    config = getattr(transformers, config_name)(**{**values, **changes})
    model: torch.nn.Module = getattr(transformers, model_name)(config)
    return model.eval()


@pytest.fixture(scope="session", params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    """The name of each family in turn."""
    return str(request.param)


@pytest.fixture(scope="session")
def tiny(family: str) -> torch.nn.Module:
    """A tiny random model of each family in turn."""
    return build(family)


@pytest.fixture
def tiny_bert() -> torch.nn.Module:
    """A tiny random BERT that a test may change."""
    return build("bert")


@pytest.fixture
def tiny_albert() -> torch.nn.Module:
    """A tiny random ALBERT: one module serves all layers."""
    return build("albert")


@pytest.fixture(scope="session")
def fox(minilm: Any) -> Any:
    """The recording of a sentence by a real BERT."""
    import regard

    return regard.record(minilm, "The quick brown fox jumps over the lazy dog.")
