"""The numbers that the lessons' figures must show, by definition and in float64: tests/golden/learn.json.

web/tests/learn_golden.test.ts asks the pages for the same ones. Write them anew after a change:

    PYTHONPATH=tests/support python -m lesson_numbers
"""

from __future__ import annotations

import base64
import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard import masks

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "learn.json"
HEADS = ROOT / "web" / "src" / "lib" / "learn" / "heads.json"
CHANNELS, ALIBI_SLOPE = 8, 0.5


def numbers() -> dict[str, Any]:
    """Everything, as it is kept."""
    return {
        "patterns": [pattern(name, 12, width) for name in RULES for width in (2, 3, 5)],
        "bigbird": [
            {"length": n, "width": w, "count": int(bigbird(n, w).sum())} for n, w in [(12, 1), (40, 3)]
        ],
        "positions": positions(),
        "linear": linear(),
        "slopes": [slope(p) for p in ([0.25, 0.25, 0.25, 0.25], [0.7, 0.2, 0.1], [1.0, 0.0])],
        "stack": [stack(**settings) for settings in SETTINGS],
        "heads": head_scores(),
    }


# Masks: regard's rules are the truth, the pages' have to be the same.

RULES = {
    "full": lambda n, w: masks.window(None, None),
    "causal": lambda n, w: masks.causal(),
    "padding": lambda n, w: masks.padding([n - w]),
    "window": lambda n, w: masks.window(w, w),
    "global": lambda n, w: masks.window(w, w) | masks.global_tokens(1),
    "block": lambda n, w: masks.blocks(size=w),
    "strided": lambda n, w: masks.causal() & masks.strided(w),
}


def cells(rule: masks.Mask, n: int) -> Tensor:
    return rule.tile(slice(0, n), slice(0, n), (n, n)).expand(1, 1, n, n)[0, 0]


def bigbird(n: int, w: int) -> Tensor:
    return cells(masks.bigbird(size=1, window=2 * w + 1, global_blocks=1, random_blocks=w), n)


def pattern(name: str, n: int, width: int) -> dict[str, Any]:
    allowed = cells(RULES[name](n, width), n)
    return {
        "name": name,
        "length": n,
        "width": width,
        "rows": ["".join("1" if may else "0" for may in row) for row in allowed.tolist()],
        "count": int(allowed.sum()),
        "reach": {str(i): reach(allowed, i, 3) for i in (0, 5, 11)},
    }


def reach(allowed: Tensor, i: int, layers: int) -> list[int | None]:
    """The layer at which i first hears from j, by powers of the matrix; 0 for itself."""
    step = allowed.double() + torch.eye(len(allowed), dtype=torch.float64)
    first: list[int | None] = [None] * len(allowed)
    for layer in range(layers + 1):
        for j, ways in enumerate(torch.linalg.matrix_power(step, layer)[i].tolist()):
            if ways > 0 and first[j] is None:
                first[j] = layer
    return first


# Positions.


def positions() -> dict[str, Any]:
    x = torch.randn(5, CHANNELS, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    return {
        "vectors": x.tolist(),
        "outputs": {way: attended(x, way).tolist() for way in ("none", "sinusoidal", "rotary", "alibi")},
    }


def waves(n: int) -> Tensor:
    place, channel = torch.arange(n, dtype=torch.float64)[:, None], torch.arange(CHANNELS)
    angle = place / 10000 ** ((channel - channel % 2) / CHANNELS)
    return torch.where(channel % 2 == 0, angle.sin(), angle.cos())


def turned(x: Tensor) -> Tensor:
    half = CHANNELS // 2
    angle = torch.arange(len(x))[:, None] * 10000.0 ** (
        -2 * torch.arange(half, dtype=torch.float64) / CHANNELS
    )
    a, b = x[:, :half], x[:, half:]
    return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1)


def attended(x: Tensor, way: str) -> Tensor:
    x = x + waves(len(x)) if way == "sinusoidal" else x
    query = turned(x) if way == "rotary" else x
    scores = query @ query.T / math.sqrt(CHANNELS)
    if way == "alibi":
        place = torch.arange(len(x), dtype=torch.float64)
        scores = scores - ALIBI_SLOPE * (place[:, None] - place).abs()
    return scores.softmax(-1) @ x


# Linear attention, and the derivative of the softmax.


def linear() -> list[dict[str, Any]]:
    generator = torch.Generator().manual_seed(4)
    query, keys = torch.randn(2, 7, 2, dtype=torch.float64, generator=generator)
    phi_query, phi_keys = (torch.nn.functional.elu(x) + 1 for x in (query, keys))
    scores = phi_query @ phi_keys.T
    weights = scores / scores.sum(-1, keepdim=True)
    return [
        {"query": q, "keys": keys.tolist(), "weights": w}
        for q, w in zip(query.tolist()[:3], weights.tolist()[:3], strict=True)
    ]


def slope(p: list[float]) -> dict[str, Any]:
    weights = torch.tensor(p, dtype=torch.float64)
    return {"weights": p, "slope": float((weights.diag() - weights.outer(weights)).norm())}


# The two blocks of the last chapter, as matrices on one long vector: word, place, word before, advice.

READ = ("a b c", "a c", "b a")
TEXT = ("<s>", "b", "d", "c", "b")
GAIN, VOICE = 12.0, 5.0
SETTINGS = [
    {"residual": residual, "attention": attention, "memory": memory, "temperature": temperature}
    for residual, attention, memory, temperature in [
        (True, True, True, 1.0),
        (True, False, True, 1.0),
        (True, True, False, 0.5),
        (False, True, True, 1.0),
    ]
]


def stack(*, residual: bool, attention: bool, memory: bool, temperature: float) -> dict[str, Any]:
    vocabulary = list(dict.fromkeys([word for line in READ for word in line.split()] + list(TEXT)))
    size, n = len(vocabulary), len(TEXT)
    eye, none = torch.eye(size, dtype=torch.float64), torch.zeros(size, size, dtype=torch.float64)
    back = torch.diag(torch.ones(n - 1, dtype=torch.float64), 1)  # takes place i to place i − 1

    def part(at: str) -> slice:
        start = {"word": 0, "place": size, "before": size + n, "advice": 2 * size + n}[at]
        return slice(start, start + (n if at == "place" else size))

    width = 3 * size + n
    x = torch.zeros(n, width, dtype=torch.float64)
    x[:, part("word")] = eye[[vocabulary.index(word) for word in TEXT]]
    x[:, part("place")] = torch.eye(n, dtype=torch.float64)

    def matrix(out: int, source: str, values: Tensor) -> Tensor:
        w = torch.zeros(width, out, dtype=torch.float64)
        w[part(source)] = values
        return w

    def head(x: Tensor, query: Tensor, key: Tensor, value: Tensor, to: str) -> Tensor:
        scores = (x @ query) @ (x @ key).T
        weights = scores.masked_fill(~torch.ones(n, n).tril().bool(), -math.inf).softmax(-1)
        written = torch.zeros_like(x)
        written[:, part(to)] = weights @ (x @ value) if attention else 0
        return written

    ones = torch.eye(n, dtype=torch.float64)
    written = head(
        x,
        matrix(n, "place", GAIN * back.T),
        matrix(n, "place", ones),
        matrix(size, "word", eye),
        "before",
    )
    x = x + written if residual else written
    written = head(
        x,
        matrix(size, "word", GAIN * eye),
        matrix(size, "before", eye),
        matrix(size, "word", eye),
        "advice",
    )
    x = x + written if residual else written
    followed = none.clone()
    for line in READ:
        said = [vocabulary.index(word) for word in line.split()]
        for one, after in pairwise(said):
            followed[one, after] += 1
    followed = followed / followed.sum(-1, keepdim=True).clamp_min(1)
    recalled = (x @ matrix(size, "word", eye)).relu() @ followed if memory else torch.zeros(n, size)
    advice = x[:, part("advice")] if residual else torch.zeros(n, size)
    logits = VOICE * (advice[-1] + recalled[-1])
    return {
        "text": list(TEXT),
        "read": list(READ),
        "settings": {
            "residual": residual,
            "attention": attention,
            "memory": memory,
            "temperature": temperature,
        },
        "vocabulary": vocabulary,
        "probabilities": (logits / temperature).softmax(-1).tolist(),
    }


# The recorded heads.


def recorded() -> tuple[Tensor, dict[str, Any]]:
    """Weights (layer, head, query, key) of heads.json, and the rest of it."""
    kept = json.loads(HEADS.read_text(encoding="utf-8"))
    n = len(kept["tokens"])
    codes = torch.frombuffer(bytearray(base64.b64decode(kept["weights"])), dtype=torch.uint8)
    return codes.reshape(kept["layers"], kept["heads"], n, n).double() / 255, kept


def head_scores() -> dict[str, list[float]]:
    """Scores of all heads, layer by layer, by the formulas of the page."""
    weights, kept = recorded()
    tokens = kept["tokens"]
    inner = torch.arange(1, len(tokens) - 1)
    adjectives, nouns = torch.tensor(kept["adjective_noun"]).T
    others = torch.tensor([i for i in inner.tolist() if i not in adjectives.tolist()])
    twins = [[j for j in inner.tolist() if j != i and tokens[j] == tokens[i]] for i in range(len(tokens))]
    repeated = [i for i in inner.tolist() if twins[i]]
    found = {
        "previous": weights[..., inner, inner - 1].mean(-1),
        "next": weights[..., inner, inner + 1].mean(-1),
        "first": weights[..., inner, 0].mean(-1),
        "noun": weights[..., adjectives, nouns].mean(-1) - weights[..., others, others + 1].mean(-1),
        "same": torch.stack([weights[..., i, twins[i]].sum(-1) for i in repeated]).mean(0),
    }
    return {name: scores.flatten().tolist() for name, scores in found.items()}


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(numbers(), indent=1) + "\n", encoding="utf-8")
