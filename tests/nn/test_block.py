"""TransformerBlock, FeedForward and the norms: formulas, options, errors."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from regard.errors import InvalidArgument
from regard.nn import BlockOutput, FeedForward, MultiHeadAttention, TransformerBlock


def block(**options) -> TransformerBlock:
    torch.manual_seed(0)
    made = TransformerBlock(16, 4, **options).double().eval()
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if "norm" in name:  # gains and biases that show when one is missed
                parameter.add_(0.1 * torch.randn_like(parameter))
    return made


X, MEMORY = torch.randn(2, 5, 16).double(), torch.randn(2, 7, 16).double()


@pytest.mark.parametrize("norm", ["layer", "rms"])
@pytest.mark.parametrize("activation", ["relu", "gelu", "swiglu"])
@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("cross", [True, False])
def test_a_block_is_its_formula(norm, activation, norm_first, cross):
    made = block(norm=norm, activation=activation, norm_first=norm_first, cross=cross, causal=True)

    def normalised(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
        if norm == "rms":
            return layer.weight * x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt()
        centred = x - x.mean(-1, keepdim=True)
        return layer.weight * centred / (x.var(-1, correction=0, keepdim=True) + 1e-5).sqrt() + layer.bias

    def thought(x: torch.Tensor) -> torch.Tensor:
        hidden = made.feed_forward.widen(x)
        if activation == "swiglu":
            gate, up = hidden.chunk(2, -1)
            hidden = gate * gate.sigmoid() * up
        elif activation == "gelu":
            hidden = hidden * 0.5 * (1 + torch.erf(hidden / 2**0.5))
        else:
            hidden = hidden.clamp(min=0)
        return made.feed_forward.narrow(hidden)

    parts = [(made.attention_norm, made.attention), (made.feed_forward_norm, thought)]
    if cross:
        parts.insert(1, (made.cross_norm, lambda x: made.cross(x, MEMORY)))
    x = X
    for layer, part in parts:
        x = x + part(normalised(layer, x)) if norm_first else normalised(layer, x + part(x))
    assert_close(made(X, MEMORY if cross else None), x, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("norm_first", "activation"), [*itertools.product([True, False], ["relu", "gelu"])])
def test_a_block_equals_torchs_layer_with_the_same_weights(norm_first, activation):
    torch.manual_seed(0)
    options = {
        "activation": activation,
        "norm_first": norm_first,
        "batch_first": True,
        "dtype": torch.float64,
    }
    theirs = nn.TransformerDecoderLayer(16, 4, 40, dropout=0.0, **options)
    ours = block(activation=activation, norm_first=norm_first, d_hidden=40, cross=True, causal=True)
    ours.attention = MultiHeadAttention.from_torch(theirs.self_attn, causal=True)
    ours.cross = MultiHeadAttention.from_torch(theirs.multihead_attn)
    ours.feed_forward.widen, ours.feed_forward.narrow = theirs.linear1, theirs.linear2
    ours.attention_norm, ours.cross_norm, ours.feed_forward_norm = theirs.norm1, theirs.norm2, theirs.norm3
    future = torch.ones(5, 5, dtype=torch.bool).triu(1)
    assert_close(ours(X, MEMORY), theirs(X, MEMORY, tgt_mask=future), rtol=0, atol=1e-12)


def test_weights_come_on_request_and_change_nothing():
    made = block(cross=True)
    got = made(X, MEMORY, return_weights=True)
    assert isinstance(got, BlockOutput)
    assert (got.weights.shape, got.memory_weights.shape) == ((2, 4, 5, 5), (2, 4, 5, 7))
    assert_close(got.output, made(X, MEMORY), rtol=0, atol=1e-12)


def test_dropout_acts_in_training_only():
    made = block(dropout=0.5)
    assert torch.equal(made(X), made(X))
    made.train()
    assert not torch.equal(made(X), made(X))


def test_swiglu_has_as_many_parameters_as_the_others_by_default():
    count = {
        a: sum(p.numel() for p in FeedForward(96, activation=a, bias=False).parameters())
        for a in ("gelu", "swiglu")
    }
    assert count == {"gelu": 8 * 96 * 96, "swiglu": 8 * 96 * 96}
    assert FeedForward(10, activation="swiglu").narrow.in_features == 32  # 26.7 rounded up to a multiple of 8


def test_feed_forward_acts_on_each_position_alone():
    feed, x = FeedForward(16).double(), X.clone()
    x[:, 2] = 0
    others = [0, 1, 3, 4]
    assert_close(feed(x)[:, others], feed(X)[:, others], rtol=0, atol=0)
    assert_close(feed(X[0, 0]), feed(X)[0, 0], rtol=0, atol=1e-14)  # another product, other rounding


def test_feed_forward_drops_hidden_units_in_training_only():
    feed = FeedForward(16, dropout=1.0).double()
    assert_close(feed(X), feed.narrow.bias.expand_as(X), rtol=0, atol=0)
    assert_close(feed.eval()(X), feed.narrow(F.gelu(feed.widen(X))), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"norm": "batch"}, "norm must be 'layer' or 'rms'; got 'batch'"),
        ({"activation": "tanh"}, "activation must be 'relu', 'gelu' or 'swiglu'; got 'tanh'"),
        ({"d_hidden": 0}, "d_hidden must be at least 1; got 0"),
    ],
)
def test_unknown_options_are_refused(options, message):
    with pytest.raises(InvalidArgument, match=message):
        block(**options)


def test_a_memory_goes_with_cross_attention_and_only_with_it():
    with pytest.raises(InvalidArgument, match="memory is needed by a block with cross=True; got none"):
        block(cross=True)(X)
    with pytest.raises(InvalidArgument, match="memory needs a block with cross=True; got one"):
        block()(X, MEMORY)
