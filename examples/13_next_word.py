"""From text to the next word: tokens, embeddings, blocks, scores, softmax.

p(next) = softmax(norm(block_N(… block_1(E[tokens] + P))) Eᵀ)
"""

import torch

from regard.nn import BytePair, Transformer

text = "le chat noir dort, le chat blanc mange, le chien noir dort, le chien blanc mange. " * 2

# Text becomes tokens: bytes, joined pair by pair where they often meet. Back and forth is exact.
tokens = BytePair.train([text], vocab_size=290)
ids = tokens.encode("le chat dort")
print([tokens.bytes_of(i).decode() for i in ids])
assert tokens.decode(ids) == "le chat dort"

# Tokens become vectors, these pass the blocks, and the last is compared with the vector of every token.
torch.manual_seed(0)
model = Transformer(tokens.vocab_size, 32, 4, 2, positions="rotary", norm="rms", activation="swiglu")
p = model.next_token(torch.tensor([ids]))  # (1, vocabulary)
torch.testing.assert_close(p.sum(), torch.tensor(1.0))
print(f"untrained, all {p.shape[1]} tokens are about as likely: {p.min():.4f} … {p.max():.4f}")

# What attention gives is not a word but a vector, which the end of the stack turns into scores. Fifty steps
# of learning to predict the next token, at all positions at once, teach it this text.
stream = torch.tensor([tokens.encode(text)])
optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
for _ in range(50):
    logits = model(stream[:, :-1])  # (1, n − 1, vocabulary)
    loss = torch.nn.functional.cross_entropy(logits[0], stream[0, 1:])
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
print(f"trained, loss {loss.item():.3f} nats a token")

written = model.generate(torch.tensor([tokens.encode("le chat noir")]), 12)
continued = tokens.decode(written[0].tolist())
print(continued)
assert continued.startswith("le chat noir dort, le ch")
