"""How the next token is chosen: exact probabilities at every temperature, top-k, top-p."""

from __future__ import annotations

import math

import pytest
import torch
from torch.testing import assert_close

from regard.errors import InvalidArgument
from regard.nn import choose
from regard.nn.sampling import probabilities

LOGITS = torch.tensor([[0.5, 2.0, 1.0, -1.0, 0.0]])
P = LOGITS.softmax(-1)[0]


def test_temperature_divides_the_scores():
    for temperature in (0.1, 1.0, 7.0):
        assert_close(probabilities(LOGITS, temperature, None, None), (LOGITS / temperature).softmax(-1))


def test_temperature_goes_to_argmax_and_to_uniform():
    assert_close(probabilities(LOGITS * 1e6, 1e-30, None, None)[0], torch.eye(5)[1])
    assert_close(probabilities(LOGITS, math.inf, None, None)[0], torch.full((5,), 0.2))
    assert choose(LOGITS).tolist() == [1]


def test_top_k_keeps_the_k_best():
    expected = torch.tensor([0.0, P[1], P[2], 0.0, 0.0])
    assert_close(probabilities(LOGITS, 1.0, 2, None)[0], expected / expected.sum())
    assert_close(probabilities(LOGITS, 1.0, 99, None)[0], P)


def test_top_p_keeps_the_fewest_that_sum_to_p():
    ranked = P.sort(descending=True)
    for kept in range(1, 6):
        p = float(ranked.values[:kept].sum()) - 1e-4
        got = probabilities(LOGITS, 1.0, None, p)[0]
        assert (got > 0).sum() == kept
        assert set(got.nonzero().flatten().tolist()) == set(ranked.indices[:kept].tolist())
    assert_close(probabilities(LOGITS, 1.0, None, 1.0)[0], P)


def test_tokens_that_score_minus_infinity_are_never_drawn():
    logits = torch.tensor([[0.0, -math.inf, 1.0]])
    for temperature in (0.5, math.inf):
        assert probabilities(logits, temperature, None, None)[0, 1] == 0


def test_half_precision_scores_sum_to_one_in_float32():
    p = probabilities(LOGITS.bfloat16(), 1.0, None, 0.9)
    assert p.dtype == torch.float32
    assert_close(p.sum(), torch.tensor(1.0))


def test_the_scores_are_left_as_they_were():
    before = LOGITS.clone()
    choose(LOGITS, temperature=1.0, top_k=2, top_p=0.5)
    assert torch.equal(LOGITS, before)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": -1.0}, r"temperature must be 0 or more; got -1\.0\. 0 takes the best token"),
        ({"temperature": math.nan}, "temperature must be 0 or more; got nan"),
        ({"top_k": 0}, r"top_k must be at least 1; got 0\. Leave it out"),
        ({"top_p": 0.0}, r"top_p must lie in \(0, 1\]; got 0\.0"),
        ({"top_p": 1.5}, r"top_p must lie in \(0, 1\]; got 1\.5"),
        ({"top_p": math.nan}, r"top_p must lie in \(0, 1\]; got nan"),
    ],
)
def test_impossible_numbers_are_refused(options, message):
    with pytest.raises(InvalidArgument, match=message):
        choose(LOGITS, **options)
