"""Masks: who may look at whom. True = may attend, everywhere in regard.

weights_ij = softmax over the allowed j only;   0 exactly where the mask is False
"""

import torch

import regard
from regard import masks

torch.manual_seed(0)
query, key, value = torch.randn(3, 2, 1, 6, 8).unbind()  # (2 items, 1 head, 6 words, 8 channels)

# By hand: a score of −∞ becomes a weight of exactly 0. Causal: no word sees a later one.
scores = query @ key.transpose(-1, -2) / 8**0.5  # (2, 1, 6, 6)
past = torch.ones(6, 6, dtype=torch.bool).tril()
weights = scores.masked_fill(~past, -torch.inf).softmax(dim=-1)
torch.testing.assert_close(regard.attention(query, key, value, causal=True), weights @ value)

# A mask in regard is a rule, not a matrix: it costs nothing until someone looks at a part of it.
print(masks.causal())
print(masks.window(1, 1) | masks.global_tokens(1))

# Rules combine: the second item has 4 words, the rest is padding; and everything is causal.
rule = masks.causal() & masks.padding([6, 4])
attended = regard.attention(query, key, value, mask=rule, return_weights=True)
assert not attended.weights[1, :, :, 4:].any()
assert not attended.weights[..., ~past].any()

# A word that may look at nobody gets 0, not the not-a-number that 0 / 0 would be.
nobody = torch.zeros(6, 6, dtype=torch.bool)
attended = regard.attention(query, key, value, mask=nobody, return_weights=True, return_lse=True)
assert not attended.output.any()
assert (attended.lse == -torch.inf).all()

# What no query may see can not harm, whatever it is.
key[1, :, 4:], value[1, :, 4:] = torch.nan, torch.inf
assert regard.attention(query, key, value, mask=rule).isfinite().all()
