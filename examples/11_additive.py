"""Additive attention, the ancestor: a small network says how well a query fits a key.

    score_ij = wᵀ tanh(W_q q_i + W_k k_j)        instead of        q_iᵀ k_j / √d

Source: Bahdanau, Cho & Bengio 2015: a translator that looks back at the sentence for every word it writes.
"""

import torch

import regard

torch.manual_seed(0)
states = torch.randn(1, 1, 4, 6)  # what the writer is about to say: 4 words, 6 channels
annotations = torch.randn(1, 1, 7, 10)  # the sentence that it reads: 7 words, 10 channels

# Queries and keys need not be of one size: both are projected to the hidden size of the network.
w_q, w_k, w = torch.randn(6, 16), torch.randn(10, 16), torch.randn(16) / 4
query, key = states @ w_q, annotations @ w_k  # (1, 1, 4, 16), (1, 1, 7, 16)

# Every pair goes through the network: 4 · 7 · 16 hidden numbers. A product needs none of them in memory.
hidden = torch.tanh(query[:, :, :, None] + key[:, :, None])  # (1, 1, 4, 7, 16)
scores = hidden @ w  # (1, 1, 4, 7)
weights = scores.softmax(dim=-1)
context = weights @ annotations  # (1, 1, 4, 10)

attended = regard.additive_attention(query, key, annotations, w, return_weights=True)
torch.testing.assert_close(attended.weights, weights)
torch.testing.assert_close(attended.output, context)

# No scaling is needed: tanh keeps every hidden number between −1 and 1, so scores stay within ±Σ|w|.
print(f"scores between {scores.min():.2f} and {scores.max():.2f}; bound {w.abs().sum():.2f}")
assert scores.abs().max() <= w.abs().sum()

# Words of padding take no part, as everywhere.
kept = torch.tensor([[True] * 5 + [False] * 2])
short = regard.additive_attention(query, key[:, :, :5], annotations[:, :, :5], w)
torch.testing.assert_close(regard.additive_attention(query, key, annotations, w, key_mask=kept), short)
