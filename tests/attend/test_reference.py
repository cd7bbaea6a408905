"""The oracle itself: against numbers worked out by hand, and against loops over single numbers."""

from __future__ import annotations

import math

import pytest
import torch

from regard import masks
from regard.attend.reference import reference_attention


def scalar_attention(query, key, value, allowed, scale, bias=None, softcap=None, temperature=1.0):
    """One query and its keys, number by number."""
    logits = []
    for j in range(len(key)):
        score = scale * sum(a * b for a, b in zip(query, key[j], strict=True))
        score = softcap * math.tanh(score / softcap) if softcap else score
        logits.append(((score + (bias[j] if bias else 0)) / temperature) if allowed[j] else -math.inf)
    if not any(allowed):
        return [0.0] * len(value[0]), [0.0] * len(key), -math.inf
    top = max(logits)
    total = sum(math.exp(x - top) for x in logits)
    weights = [math.exp(x - top) / total for x in logits]
    output = [sum(w * v[c] for w, v in zip(weights, value, strict=True)) for c in range(len(value[0]))]
    return output, weights, top + math.log(total)


@pytest.mark.parametrize("softcap", [None, 1.5])
@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_reference_equals_loops_over_numbers(softcap, temperature):
    torch.manual_seed(0)
    query, key, value = torch.randn(2, 4, 5, 3), torch.randn(2, 2, 6, 3), torch.randn(2, 2, 6, 2)
    query, key, value = query.double(), key.double(), value.double()
    mask, bias = torch.rand(5, 6) > 0.4, torch.randn(5, 6).double()
    mask[2] = False
    got = reference_attention(
        query, key, value, mask=mask, bias=bias, scale=0.7, softcap=softcap, temperature=temperature
    )
    for b in range(2):
        for h in range(4):
            for i in range(5):
                output, weights, lse = scalar_attention(
                    query[b, h, i].tolist(),
                    key[b, h // 2].tolist(),
                    value[b, h // 2].tolist(),
                    mask[i].tolist(),
                    0.7,
                    bias[i].tolist(),
                    softcap,
                    temperature,
                )
                torch.testing.assert_close(got.output[b, h, i].tolist(), output, rtol=0, atol=1e-14)
                torch.testing.assert_close(got.weights[b, h, i].tolist(), weights, rtol=0, atol=1e-14)
                torch.testing.assert_close(got.lse[b, h, i].item(), lse, rtol=0, atol=1e-14)


def test_two_keys_with_logits_zero_and_log_three_share_as_one_to_three():
    key = torch.tensor([[0.0], [math.log(3)]], dtype=torch.float64).reshape(1, 1, 2, 1)
    value = torch.tensor([[0.0], [1.0]], dtype=torch.float64).reshape(1, 1, 2, 1)
    got = reference_attention(torch.ones(1, 1, 1, 1, dtype=torch.float64), key, value)
    torch.testing.assert_close(got.weights.flatten().tolist(), [0.25, 0.75], rtol=0, atol=1e-15)
    torch.testing.assert_close(got.output.item(), 0.75, rtol=0, atol=1e-15)
    torch.testing.assert_close(got.lse.item(), math.log(4), rtol=0, atol=1e-15)


def test_at_temperature_zero_ties_share_and_at_infinity_all_allowed_keys_share():
    logits = torch.tensor([1.0, 2.0, 2.0, 5.0]).double()
    query, value = torch.ones(1, 1, 1, 1).double(), torch.eye(4).double()[None, None]
    key, mask = logits.reshape(1, 1, 4, 1), torch.tensor([[True, True, True, False]])
    coldest = reference_attention(query, key, value, mask=mask, temperature=0.0)
    hottest = reference_attention(query, key, value, mask=mask, temperature=math.inf)
    assert coldest.weights.flatten().tolist() == [0, 0.5, 0.5, 0]
    torch.testing.assert_close(hottest.weights.flatten().tolist(), [1 / 3, 1 / 3, 1 / 3, 0.0])
    torch.testing.assert_close(coldest.lse.item(), math.log(2))
    torch.testing.assert_close(hottest.lse.item(), math.log(3))


def test_masks_of_every_form_say_the_same():
    torch.manual_seed(1)
    query, key, value = torch.randn(3, 2, 2, 7, 4).double().unbind()
    by_flag = reference_attention(query, key, value, causal=True, key_mask=torch.arange(7)[None] < 5)
    by_rule = reference_attention(query, key, value, mask=masks.causal() & masks.padding([5, 5]))
    by_bias = reference_attention(
        query, key, value, bias=torch.zeros(7, 7).masked_fill(~by_flag.weights[0, 0].bool(), -math.inf)
    )
    for other in (by_rule, by_bias):
        for one, two in zip(by_flag, other, strict=True):
            assert torch.equal(one, two)
