"""Positions: without them attention reads a bag of words.

attention(P X) = P attention(X)    for every permutation P
"""

import torch

from regard.nn import Alibi, MultiHeadAttention, RotaryPositions, SinusoidalPositions

torch.manual_seed(0)
x = torch.randn(1, 6, 16)
x[:, 4] = x[:, 1]  # words 1 and 4 are the same, like the two « le » of a sentence
order = torch.tensor([3, 0, 5, 1, 4, 2])

# Without positions the order of the words means nothing, and equal words get equal weight.
plain = MultiHeadAttention(16, 2)
torch.testing.assert_close(plain(x[:, order]), plain(x)[:, order])
weights = plain(x, return_weights=True).weights
torch.testing.assert_close(weights[..., 1], weights[..., 4])


def tells_apart(attend: MultiHeadAttention, x: torch.Tensor) -> float:
    """How differently the two equal words are seen."""
    weights = attend(x, return_weights=True).weights
    return (weights[..., 1] - weights[..., 4]).abs().max().item()


# Four ways to say where a word stands.
waves = x + SinusoidalPositions(16)(torch.arange(6))  # added to the words
rotary = MultiHeadAttention(16, 2, positions=RotaryPositions(8))  # turns queries and keys
alibi = MultiHeadAttention(16, 2, positions=Alibi(2))  # a penalty for distance
for name, difference in (
    ("none", tells_apart(plain, x)),
    ("sinusoidal", tells_apart(plain, waves)),
    ("rotary", tells_apart(rotary, x)),
    ("ALiBi", tells_apart(alibi, x)),
):
    print(f"{name:>10}: the two equal words differ by up to {difference:.3f}")
    assert (difference > 1e-3) == (name != "none")

# Rotary scores depend on the distance alone: everything moved by 1000 places gives the same.
rotate = RotaryPositions(8)
q, k = torch.randn(2, 1, 1, 6, 8).unbind()
near = rotate(q) @ rotate(k).transpose(-1, -2)
far = rotate(q, 1000) @ rotate(k, 1000).transpose(-1, -2)
torch.testing.assert_close(near, far, rtol=0, atol=1e-3)
