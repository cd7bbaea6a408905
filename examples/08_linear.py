"""Linear attention: another weight than the softmax's, chosen so that the sum over keys can be done once.

    output_i = φ(q_i)ᵀ (Σ_j φ(k_j) v_jᵀ) / φ(q_i)ᵀ (Σ_j φ(k_j))        O(n d²) instead of O(n² d)

Source: Katharopoulos et al. 2020.
"""

import torch

import regard

torch.manual_seed(0)
query, key, value = torch.randn(3, 1, 1, 200, 8).unbind()


def phi(x: torch.Tensor) -> torch.Tensor:
    """A feature map with positive values, so that weights are positive too."""
    return torch.nn.functional.elu(x) + 1


# The slow way: all n × n similarities, rows divided by their sums. Not a softmax, but weights all the same.
similar = phi(query) @ phi(key).transpose(-1, -2)  # (1, 1, 200, 200)
weights = similar / similar.sum(dim=-1, keepdim=True)
slow = weights @ value

# The fast way: brackets moved. (φ(Q) φ(K)ᵀ) V = φ(Q) (φ(K)ᵀ V), and the right-hand bracket is only 8 × 8.
products = phi(key).transpose(-1, -2) @ value  # (1, 1, 8, 8): Σ φ(k) vᵀ
features = phi(key).sum(dim=2)  # (1, 1, 8): Σ φ(k)
fast = phi(query) @ products / (phi(query) @ features[..., None])
torch.testing.assert_close(fast, slow)
torch.testing.assert_close(regard.linear_attention(query, key, value), slow)

# Causal, word by word: the two sums are all that is remembered: a cache that does not grow.
causal = similar.tril()
causal = causal / causal.sum(dim=-1, keepdim=True) @ value
state, outputs = None, []
for t in range(200):
    word = slice(t, t + 1)
    output, state = regard.linear_attention(
        query[:, :, word], key[:, :, word], value[:, :, word], state=state, return_state=True
    )
    outputs.append(output)
torch.testing.assert_close(torch.cat(outputs, dim=2), causal)
torch.testing.assert_close(regard.linear_attention(query, key, value, causal=True), causal)

# The price: weights are blunter than a softmax's.
softmax = regard.attention(query, key, value, return_weights=True).weights
sharp, blunt = softmax.amax(-1).mean(), weights.amax(-1).mean()
print(f"largest weight of a row: softmax {sharp:.3f}, linear {blunt:.3f}")
print(
    f"remembered after 200 words: {products.numel() + features.numel()} numbers; by a cache {2 * key.numel()}"
)
assert blunt < sharp
