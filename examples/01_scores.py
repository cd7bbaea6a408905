"""Attention in four steps, with numbers that fit on a hand.

    scores = Q Kᵀ / √d     weights = softmax(scores)     output = weights V

A query asks, every key says how well it answers, and the output is the mean of the values, weighted by the
answers.
"""

import math

import torch

import regard

# Three words. A query is what a word looks for, a key what it can be found by, a value what it hands over.
words = ["chat", "noir", "dort"]
query = torch.tensor([[1.0, 0.2], [0.0, 1.0], [0.6, -1.0]])  # (3 words, 2 channels)
key = torch.tensor([[0.3, -1.2], [1.4, 0.1], [-0.8, 0.5]])  # (3, 2)
value = torch.tensor(
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
)  # (3, 3): one axis a word, to see who came

# 1. Scores: how well does each key answer each query? A dot product: long when both point the same way.
scores = query @ key.T  # (3 queries, 3 keys)

# 2. Scaling: the dot product of d channels varies d times as much as one channel does. See 02_scaling.py.
scores = scores / math.sqrt(query.shape[-1])

# 3. Softmax: every row becomes shares, positive and with the sum 1.
weights = scores.exp() / scores.exp().sum(dim=-1, keepdim=True)  # (3, 3)

# 4. The weighted sum of the values.
output = weights @ value  # (3, 3)

for word, row in zip(words, weights, strict=True):
    shares = ", ".join(f"{share:.2f} of {other}" for share, other in zip(row.tolist(), words, strict=True))
    print(f"{word:>5} takes {shares}")

# It is what regard computes, for any number of items and heads: (batch, heads, length, channels).
q, k, v = (x[None, None] for x in (query, key, value))
attended = regard.attention(q, k, v, return_weights=True)
torch.testing.assert_close(attended.weights[0, 0], weights)
torch.testing.assert_close(attended.output[0, 0], output)

# Weights are positive and sum to 1, so an output never leaves the region that the values span.
assert (weights > 0).all()
torch.testing.assert_close(weights.sum(dim=-1), torch.ones(3))
assert output.min() >= value.min()
assert output.max() <= value.max()
