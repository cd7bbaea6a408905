"""Block-sparse attention: only some blocks of the matrix exist.

    BigBird = a window + a few global blocks + a few random blocks in each row

Sources: Child et al. 2019; Zaheer et al. 2020.
"""

import torch

import regard
from regard import masks

torch.manual_seed(0)
query, key, value = torch.randn(3, 1, 2, 512, 16).unbind()

# A layout says which blocks of 16 × 16 pairs exist. Random ones bring every word within a few layers.
rule = masks.bigbird(16, window=3, global_blocks=1, random_blocks=2)
layout = rule.full((512, 512))[..., ::16, ::16]  # one number a block: (32, 32)
for row in layout.reshape(32, 32).tolist():
    print(" ".join("■" if seen else "·" for seen in row))

sparse = regard.block_sparse_attention(query, key, value, rule)
torch.testing.assert_close(sparse, regard.attention(query, key, value, mask=rule))

# Any layout will do: here every block sees itself and the first one.
own = torch.eye(32, dtype=torch.bool)
own[:, 0] = True
sparse = regard.block_sparse_attention(query, key, value, own, block_size=16)
dense = regard.attention(query, key, value, mask=masks.blocks(own, size=16))
torch.testing.assert_close(sparse, dense)

# What a word has heard of after one layer, two layers, …
step = layout.reshape(32, 32).float()
heard, layers = step, 1
while not heard.all():
    heard, layers = heard @ step, layers + 1
print(f"{step.mean():.0%} of the blocks, yet after {layers} layers every word has heard of every other")
assert layers <= 3
