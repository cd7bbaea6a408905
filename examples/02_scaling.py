"""Why scores are divided by √d: without it the softmax saturates and nothing is learnt.

    Var(q·k) = d   for independent channels of variance 1,   so   Var(q·k / √d) = 1

Source: Vaswani et al. 2017, §3.2.1, footnote 4.
"""

import math

import torch

import regard

torch.manual_seed(0)
print(f"{'d':>5}  {'Var(q·k)':>9}  {'scaled':>6}  {'largest of 16 weights':>22}  {'and its gradient':>16}")
for d in (4, 64, 1024):
    query, key = torch.randn(2, 4000, 16, d).unbind()  # 4000 times 16 keys
    scores = (query[:, :1] * key).sum(dim=-1)  # (4000, 16)
    scaled = scores / math.sqrt(d)
    for name, s in (("unscaled", scores), ("scaled", scaled)):
        weights = s.softmax(dim=-1)
        # The gradient of a weight by its own score is w (1 − w): zero where the softmax is sure of itself.
        gradient = (weights * (1 - weights)).sum(dim=-1).mean()
        best = weights.amax(dim=-1).mean()
        print(
            f"{d:>5}  {scores.var():>9.1f}  {scaled.var():>6.2f}  {name:>12} {best:>9.2f}  {gradient:>16.3f}"
        )
    assert abs(scores.var() / d - 1) < 0.1  # as many units of variance as channels
    assert abs(scaled.var() - 1) < 0.1  # whatever d, after scaling

# A temperature divides the scores once more: towards 0 one value is copied, towards ∞ all are averaged.
q, k, v = torch.randn(3, 1, 1, 5, 8).unbind()
cold = regard.attention(q, k, v, temperature=0.0)
hot = regard.attention(q, k, v, temperature=math.inf)
torch.testing.assert_close(cold[0, 0], v[0, 0][(q @ k.transpose(-1, -2))[0, 0].argmax(dim=-1)])
torch.testing.assert_close(hot, v.mean(dim=2, keepdim=True).expand_as(hot))
