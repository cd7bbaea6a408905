"""The cache: a new word asks once; keys and values of the old ones are kept, not made again.

step t:   K ← [K; k_t],   V ← [V; v_t],   o_t = attention(q_t, K, V)        O(n) a step instead of O(n²)
"""

import torch

import regard
from regard.nn import KVCache, MultiHeadAttention

torch.manual_seed(0)
query, key, value = torch.randn(3, 1, 2, 8, 4).unbind()  # 8 words
whole = regard.attention(query, key, value, causal=True)

# By hand: at each step one query, and all keys so far. One query over n keys sees all of them: masks align at
# the bottom right, because the query is the newest word.
for t in range(8):
    step = regard.attention(query[:, :, [t]], key[:, :, : t + 1], value[:, :, : t + 1], causal=True)
    torch.testing.assert_close(step, whole[:, :, [t]])

# With a module, and a prompt of three words at once. Without gradients: a cache reads, it does not learn.
attend = MultiHeadAttention(16, 4, num_kv_heads=2, causal=True).eval()
x, cache = torch.randn(1, 8, 16), KVCache()
with torch.no_grad():
    whole = attend(x)
    torch.testing.assert_close(attend(x[:, :3], cache=cache), whole[:, :3])
    for t in range(3, 8):
        torch.testing.assert_close(attend(x[:, [t]], cache=cache), whole[:, [t]])
print(cache)

# A window of 2 words back needs the last keys only: a sliding cache forgets the others.
attend = MultiHeadAttention(16, 4, causal=True, window=(2, 0)).eval()
cache = KVCache(window=2)
with torch.no_grad():
    whole = attend(x)
    for t in range(8):
        torch.testing.assert_close(attend(x[:, [t]], cache=cache), whole[:, [t]])
print(cache, f"hands out keys from position {cache.start} on")
