"""Merging: attention over two ranges of keys, put together exactly, as a ring of machines needs it.

lse = log(e^lse₁ + e^lse₂)        output = e^{lse₁−lse} output₁ + e^{lse₂−lse} output₂
"""

import torch

import regard

torch.manual_seed(0)
query, key, value = torch.randn(3, 1, 2, 10, 8).unbind()
whole = regard.attention(query, key, value, return_lse=True)

# Each half knows only its own keys, and says how much it weighs: its log-sum-exp.
first = regard.attention(query, key[:, :, :6], value[:, :, :6], return_lse=True)
second = regard.attention(query, key[:, :, 6:], value[:, :, 6:], return_lse=True)

# By hand.
lse = torch.logaddexp(first.lse, second.lse)
share = (first.lse - lse).exp()[..., None]
output = share * first.output + (1 - share) * second.output
torch.testing.assert_close(output, whole.output)
torch.testing.assert_close(lse, whole.lse)

# By regard, and in any order.
merged = regard.merge(second, first)
torch.testing.assert_close(merged.output, whole.output)
torch.testing.assert_close(merged.lse, whole.lse)

# A range in which a query may see nothing weighs e^−∞ = 0: it changes nothing.
nobody = torch.zeros(10, 6, dtype=torch.bool)
empty = regard.attention(query, key[:, :, :6], value[:, :, :6], mask=nobody, return_lse=True)
torch.testing.assert_close(regard.merge(empty, second).output, second.output)

# Ten ranges of one key each are still the whole. The output of one key is its value, its lse the score.
parts = [
    regard.attention(query, key[:, :, [j]], value[:, :, [j]], return_lse=True) for j in range(key.shape[2])
]
torch.testing.assert_close(regard.merge(*parts).output, whole.output)
print(f"from two halves: {(merged.output - whole.output).abs().max():.1e} away from the whole")
