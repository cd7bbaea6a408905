"""TokenEmbedding and the modules of positions."""

from __future__ import annotations

import math

import pytest
import torch
from torch.testing import assert_close

from regard.attend.positions import NTK, rotary
from regard.errors import InvalidArgument
from regard.nn import (
    Alibi,
    LearnedPositions,
    RelativePositions,
    RotaryPositions,
    SinusoidalPositions,
    TokenEmbedding,
)

TOKENS = torch.tensor([[3, 1, 3, 0]])


def test_an_embedding_is_scale_times_token_plus_position():
    for positions in (None, SinusoidalPositions(6), LearnedPositions(10, 6)):
        for scaled in (True, False):
            embed = TokenEmbedding(5, 6, positions=positions, scaled=scaled)
            expected = embed.weight[TOKENS] * (math.sqrt(6) if scaled else 1)
            if positions is not None:
                expected = expected + positions(torch.arange(2, 6))
            assert_close(embed(TOKENS, start=2), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("d_model", [1, 2, 5, 6])
def test_sinusoids_are_the_papers(d_model):
    got = SinusoidalPositions(d_model)(torch.tensor([0, 1, 7, 1000]))
    for row, position in enumerate([0, 1, 7, 1000]):
        for channel in range(d_model):
            phase = position / 10_000 ** (2 * (channel // 2) / d_model)
            expected = math.cos(phase) if channel % 2 else math.sin(phase)
            assert got[row, channel].item() == pytest.approx(expected, abs=2e-4)


def test_positions_may_be_given_one_by_one():
    embed = TokenEmbedding(5, 6, positions=LearnedPositions(10, 6))
    index = torch.tensor([[0, 0, 1, 2]])
    assert_close(embed(TOKENS, index=index), embed.weight[TOKENS] + embed.positions.weight[index])


def test_tied_scores_are_products_with_the_vectors():
    embed, x = TokenEmbedding(5, 6), torch.randn(2, 3, 6)
    assert_close(embed.logits(x), x @ embed.weight.T)


def test_initialisation_is_as_stated():
    torch.manual_seed(0)
    assert TokenEmbedding(1000, 64, scaled=True).weight.std().item() == pytest.approx(0.125, rel=0.02)
    assert TokenEmbedding(1000, 64).weight.std().item() == pytest.approx(0.02, rel=0.02)
    assert LearnedPositions(1000, 64).weight.std().item() == pytest.approx(0.02, rel=0.02)
    assert RelativePositions(64, buckets=512, max_distance=999).weight.std().item() == pytest.approx(
        0.02, rel=0.02
    )


def test_positions_inside_attention_keep_dtype_and_say_distances():
    x = torch.randn(1, 2, 5, 8, dtype=torch.bfloat16)
    assert RotaryPositions(8)(x).dtype == torch.bfloat16
    assert_close(Alibi(3)(2, 6), Alibi(3)(6, 6)[:, :, 4:])
    relative = RelativePositions(3)
    assert_close(relative(2, 6), relative(6, 6)[:, :, 4:])
    assert_close(relative(6, 6)[0, :, 0, 1], relative(6, 6)[0, :, 4, 5])


def test_causal_relative_positions_do_not_tell_futures_apart():
    bias = RelativePositions(2, causal=True)(4, 4)
    assert_close(bias[0, :, 0, 1:], bias[0, :, :1, 0].expand(2, 3))


def test_errors_name_what_was_expected():
    embed = TokenEmbedding(5, 6, positions=LearnedPositions(4, 6))
    with pytest.raises(
        InvalidArgument, match=r"learned positions end at max_length=4; got a sequence of 5 tokens"
    ):
        embed(TOKENS, start=1)
    with pytest.raises(
        InvalidArgument, match=r"whole numbers of shape \(batch, length\); got torch\.int64 \(4,\)"
    ):
        embed(TOKENS[0])
    with pytest.raises(InvalidArgument, match=r"got torch\.float32 \(1, 4\)"):
        embed(TOKENS.float())
    with pytest.raises(InvalidArgument, match="vocab_size and d_model must be at least 1; got 0 and 6"):
        TokenEmbedding(0, 6)
    with pytest.raises(InvalidArgument, match="max_length must be at least 1; got 0"):
        LearnedPositions(0, 6)
    with pytest.raises(InvalidArgument, match="even"):
        RotaryPositions(5)
    with pytest.raises(InvalidArgument, match="heads must be a number ≥ 1; got 0"):
        Alibi(0)
    with pytest.raises(InvalidArgument, match="buckets must be even and ≥ 4; got 2"):
        RelativePositions(4, buckets=2)


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_queries_and_keys_are_turned_by_one_table(layout):
    turn = RotaryPositions(8, layout=layout, scaling=NTK(4.0), channels=4)
    q, k = torch.randn(1, 4, 5, 8), torch.randn(1, 2, 5, 8)
    for got, x in zip(turn.both(q, k, 3), (q, k), strict=True):
        expected = rotary(x, 3, layout=layout, scaling=NTK(4.0), channels=4)
        assert_close(got, expected, rtol=0, atol=0)
        assert_close(turn(x, 3), expected, rtol=0, atol=0)
