"""Many heads: several attentions side by side, each with its own question, in one batched product.

MultiHead(X) = [head_1; …; head_h] W_O,    head_i = attention(X W_Qi, X W_Ki, X W_Vi)
"""

import torch

import regard
from regard.nn import MultiHeadAttention

torch.manual_seed(0)
batch, words, d_model, heads = 2, 5, 16, 4
d_k = d_model // heads  # each head works on 4 channels: together they cost what one big head would
attend = MultiHeadAttention(d_model, heads, causal=True)
x = torch.randn(batch, words, d_model)

# One product makes queries, keys and values of all heads.
q, k, v = attend.projections(x)  # each (2, 4 heads, 5, 4)

# Slowly: one head after the other, then joined, then mixed by the output projection.
slow = [regard.attention(q[:, [i]], k[:, [i]], v[:, [i]], causal=True)[:, 0] for i in range(heads)]
joined = torch.cat(slow, dim=-1)  # (2, 5, 16)
torch.testing.assert_close(attend(x), attend.output(joined))

# The weights of every head, when somebody wants to see them. Asking does not change the output.
attended = attend(x, return_weights=True)
torch.testing.assert_close(attended.output, attend(x))
for i, matrix in enumerate(attended.weights[0]):
    print(f"head {i}, last word: {'  '.join(f'{weight:.2f}' for weight in matrix[-1].tolist())}")

# Grouped queries: 4 query heads share 2 key/value heads. Query head h reads key head h // 2; a cache is half
# as big.
grouped = MultiHeadAttention(d_model, heads, num_kv_heads=2)
q, k, v = grouped.projections(x)
print(f"keys of all heads {tuple(q.shape)}, of two groups {tuple(k.shape)}")
torch.testing.assert_close(
    regard.attention(q, k, v), regard.attention(q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1))
)

# It takes over the weights of PyTorch's own module, and gives the same.
theirs = torch.nn.MultiheadAttention(d_model, heads, batch_first=True)
ours = MultiHeadAttention.from_torch(theirs)
torch.testing.assert_close(ours(x), theirs(x, x, x)[0])
