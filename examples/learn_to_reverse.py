"""Train a small transformer to write a sequence backwards, and draw how it learns.

    loss = −mean log p(reversed sequence | sequence)

The answer depends on one token, at another distance for each position: nothing but attention can bring it. A
model sees  3 1 4 | 4 1 3  and is asked for every token after the bar. It takes a few seconds on one core. The
picture shows the loss, and the head that has learnt to look at the mirror image.

    python examples/learn_to_reverse.py [picture.svg]
"""

from __future__ import annotations

import math
import sys

import torch
import torch.nn.functional as F

from regard.nn import Transformer

DIGITS, LENGTH, BAR = 10, 8, 10  # tokens 0 … 9, and 10 for the bar


def batch(size: int, generator: torch.Generator) -> torch.Tensor:
    """Random digits, the bar, and the digits backwards: (size, 2 · LENGTH + 1)."""
    digits = torch.randint(0, DIGITS, (size, LENGTH), generator=generator)
    return torch.cat([digits, torch.full((size, 1), BAR), digits.flip(1)], dim=1)


def train(steps: int = 300, seed: int = 0) -> tuple[Transformer, list[float]]:
    """The trained model, and the loss of every step in nats a token. Guessing costs ln 10 = 2.30."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model = Transformer(DIGITS + 1, 32, 2, 1, positions="learned", max_length=2 * LENGTH + 1)
    optimiser = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=5e-3, total_steps=steps)
    losses = []
    for _ in range(steps):
        tokens = batch(64, generator)
        logits = model(tokens[:, :-1])[:, LENGTH:]  # what it says from the bar on: (64, LENGTH, 11)
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, LENGTH + 1 :].flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        losses.append(loss.item())
    return model, losses


def accuracy(model: Transformer, size: int = 500, seed: int = 1) -> float:
    """The share of new sequences that the model writes backwards without a single mistake."""
    tokens = batch(size, torch.Generator().manual_seed(seed))
    written = model.generate(tokens[:, : LENGTH + 1], LENGTH)
    return (written == tokens).all(dim=1).float().mean().item()


@torch.no_grad()
def mirror(model: Transformer, seed: int = 2) -> torch.Tensor:
    """Mean weights of the head that looks most at the mirror image: (LENGTH written, LENGTH read)."""
    tokens = batch(100, torch.Generator().manual_seed(seed))[:, :-1]
    heads = model.decoder(model.embedding(tokens), return_weights=True).weights[0].mean(dim=0)  # (h, n, n)
    written_by_read = heads[:, LENGTH:, :LENGTH]  # (h, LENGTH, LENGTH)
    return max(written_by_read, key=lambda weights: weights.flip(1).trace().item())


def draw(losses: list[float], weights: torch.Tensor, path: str) -> None:
    """The loss curve, and the head, as a picture."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.5), layout="compressed")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    left.plot(losses, linewidth=1)
    left.axhline(math.log(DIGITS), linestyle="--", linewidth=1, color="grey", label="guessing")
    left.set(xlabel="step", ylabel="loss, nats a token", ylim=(0, None))
    left.legend(frameon=False)
    right.imshow(weights.numpy(), cmap="Greys", vmin=0, vmax=1)
    right.set(xlabel="digit read", ylabel="digit written", title="where a head looks")
    figure.savefig(path)


def main(picture: str | None = None) -> None:
    model, losses = train()
    reached, weights = accuracy(model), mirror(model)
    on_mirror = weights.flip(1).trace().item() / LENGTH
    print(f"loss {losses[0]:.2f} → {losses[-1]:.4f} nats a token, guessing {math.log(DIGITS):.2f}")
    print(f"{reached:.1%} of 500 new sequences written backwards without a mistake")
    print(f"one head puts {on_mirror:.0%} of its weight on the mirror image")
    if picture is not None:
        draw(losses, weights, picture)
    assert reached >= 0.95
    assert on_mirror > 0.5


if __name__ == "__main__":
    main(*sys.argv[1:])
