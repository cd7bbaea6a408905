"""A sliding window with a few global words: O(n · window) instead of O(n²).

    query p sees key j  ⇔  p − left ≤ j ≤ p + right,  or one of them is a global word

Source: Beltagy et al. 2020 (Longformer).
"""

import torch

import regard
from regard import masks

torch.manual_seed(0)
query, key, value = torch.randn(3, 1, 2, 500, 16).unbind()

# The same rule twice: as a mask over all 500 × 500 pairs, and by a kernel that visits only the allowed ones.
rule = masks.window(8, 8) | masks.global_tokens(2)
print(rule.draw(22))
everything = regard.attention(query, key, value, mask=rule)
banded = regard.sliding_window_attention(query, key, value, window=(8, 8), global_tokens=2)
torch.testing.assert_close(banded, everything)

# A window as wide as the text is full attention.
torch.testing.assert_close(
    regard.sliding_window_attention(query, key, value, window=(500, 500)), regard.attention(query, key, value)
)
pairs = int(rule.full((500, 500)).sum())
print(f"{pairs} of {500 * 500} pairs are looked at")
assert pairs < 0.05 * 500 * 500
