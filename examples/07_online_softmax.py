"""Online softmax: exact attention that never holds a whole row of scores. The idea inside FlashAttention.

    m' = max(m, s)    ℓ' = ℓ e^{m−m'} + e^{s−m'}    o' = o e^{m−m'} + e^{s−m'} v        at the end: o / ℓ

Sources: Milakov & Gimelshein 2018; Dao et al. 2022.
"""

import torch

import regard

torch.manual_seed(0)
query, key, value = torch.randn(3, 1, 1, 300, 16).unbind()
scale = 16**-0.5

# Three numbers a query travel along the keys, tile by tile: the largest score so far, the sum of exponentials
# below it, and the weighted sum of values. A new largest score shrinks what was summed before.
largest = torch.full((300, 1), -torch.inf)
total = torch.zeros(300, 1)
output = torch.zeros(300, 16)
for start in range(0, 300, 64):
    k, v = key[0, 0, start : start + 64], value[0, 0, start : start + 64]  # (≤ 64, 16)
    scores = query[0, 0] @ k.T * scale  # (300, ≤ 64): all that ever exists
    new_largest = torch.maximum(largest, scores.amax(dim=-1, keepdim=True))
    shrink = (largest - new_largest).exp()
    exponentials = (scores - new_largest).exp()
    total = total * shrink + exponentials.sum(dim=-1, keepdim=True)
    output = output * shrink + exponentials @ v
    largest = new_largest
output = output / total
lse = largest + total.log()  # log Σ exp(scores): with it any weight can be had again, later

whole = regard.attention(query, key, value, return_weights=True, return_lse=True)
torch.testing.assert_close(output, whole.output[0, 0])
torch.testing.assert_close(lse[:, 0], whole.lse[0, 0])
rectangle = (query[0, 0, 100:110] @ key[0, 0, 40:60].T * scale - lse[100:110]).exp()
torch.testing.assert_close(rectangle, whole.weights[0, 0, 100:110, 40:60])

# Regard's own version, with masks and a backward pass in tiles as well.
torch.testing.assert_close(regard.online_softmax_attention(query, key, value)[0, 0], output)
difference = (output - whole.output).abs().max()
print(f"300 × 300 scores, at most 300 × 64 at a time; largest difference {difference:.1e}")
