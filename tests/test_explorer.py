"""The explorer: the figures of its example, its mathematics against Python's, and its Python lines run.

The states are listed in web/tests/explore_golden.test.ts, which writes tests/golden/explore_states.json.
Write the numbers anew after a change of them: python tests/test_explorer.py
"""

from __future__ import annotations

import json
import math
from importlib.resources import files
from itertools import pairwise, permutations
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import regard

GOLDEN = Path(__file__).parent / "golden"
STATES = json.loads((GOLDEN / "explore_states.json").read_text(encoding="utf-8"))
EXAMPLE = json.loads(files("regard").joinpath("lessons", "example.json").read_text(encoding="utf-8"))
NUMBERS = GOLDEN / "explore.json"


def example(kind: str, language: str) -> Tensor:
    """The example's vectors of one kind in the order of the sentence, (1, 1, 7, 2)."""
    rows = [EXAMPLE["vectors"][role][kind] for role in EXAMPLE["roles"][language]]
    return torch.tensor(rows, dtype=torch.float64)[None, None]


def example_weights(language: str) -> Tensor:
    query, key, value = (example(kind, language) for kind in ("query", "key", "value"))
    return regard.attention(query, key, value, return_weights=True).weights[0, 0]


# The example.


@pytest.mark.parametrize("language", ["fr", "en"])
def test_the_cat_asks_and_black_answers_058_itself_024(language: str) -> None:
    roles = EXAMPLE["roles"][language]
    row = example_weights(language)[roles.index("animal")]
    assert row[roles.index("colour")] == pytest.approx(0.58, abs=0.005)
    assert row[roles.index("animal")] == pytest.approx(0.24, abs=0.005)


@pytest.mark.parametrize(
    ("asks", "answers"),
    [
        ("verb", "animal"),
        ("colour", "animal"),
        ("place", "ground"),
        ("ground", "place"),
        ("animal", "colour"),
    ],
)
def test_every_word_asks_for_what_it_needs(asks: str, answers: str) -> None:
    roles = EXAMPLE["roles"]["fr"]
    assert roles[int(example_weights("fr")[roles.index(asks)].argmax())] == answers


def test_an_article_without_positions_cannot_tell_its_own_noun() -> None:
    row = example_weights("fr")[0].tolist()
    assert row[1] == pytest.approx(row[6], abs=0.02)
    assert row[1] + row[6] > 0.75


def test_both_articles_share_key_and_value_and_so_their_weight() -> None:
    assert EXAMPLE["words"]["fr"][0] == EXAMPLE["words"]["fr"][5] == "le"
    assert EXAMPLE["words"]["en"][0] == EXAMPLE["words"]["en"][5] == "the"
    weights = example_weights("fr")
    assert torch.equal(weights[:, 0], weights[:, 5])


# The same numbers on both sides.


def temperature(given: float | str) -> float:
    return math.inf if given == "inf" else float(given)


def turned(vectors: Tensor, angle: Tensor | float) -> Tensor:
    x, y = vectors.unbind(-1)
    angle = torch.as_tensor(angle, dtype=torch.float64)
    return torch.stack([angle.cos() * x - angle.sin() * y, angle.sin() * x + angle.cos() * y], -1)


def softmax(scores: Tensor, at: float, allowed: Tensor) -> Tensor:
    """By the definition; T = 0 shares 1 among the largest scores, T = ∞ among all allowed keys."""
    best = scores.masked_fill(~allowed, -math.inf).amax(-1, keepdim=True)
    if at in (0, math.inf):
        parts = (allowed & (scores == best) if at == 0 else allowed).double()
    else:
        parts = ((scores - best) / at).masked_fill(~allowed, -math.inf).exp()
    return parts / parts.sum(-1, keepdim=True)


def numbers_of(state: dict[str, Any]) -> dict[str, Any]:
    """Weights, outputs and result of a state, from the definition: nothing of the page, nothing of regard."""
    words, n = state["words"], len(state["words"])
    vectors = {
        kind: torch.tensor([state["vectors"][word][kind] for word in words], dtype=torch.float64)
        for kind in ("query", "key", "value")
    }
    place = torch.arange(n, dtype=torch.float64)
    wave = state["size"] * torch.stack([place.sin(), place.cos()], -1) * (state["positions"] == "sinusoidal")
    spin = state["turn"] * place * (state["positions"] == "rotary")
    allowed = torch.ones(n, n, dtype=torch.bool)
    allowed = allowed.tril() if state["causal"] else allowed
    weights, outputs, result = [], [], torch.zeros(n, 2, dtype=torch.float64)
    for head in state["heads"][: state["headCount"]]:
        query, key = (
            turned(turned(vectors[kind] + wave, math.radians(head[kind])), spin) for kind in ("query", "key")
        )
        value = turned(vectors["value"], math.radians(head["value"]))
        scores = query @ key.T / (math.sqrt(2) if state["scaled"] else 1)
        weights.append(softmax(scores, temperature(state["temperature"]), allowed))
        outputs.append(weights[-1] @ value)
        result += outputs[-1] * (head["mix"] / state["headCount"] if state["headCount"] > 1 else 1)
    if state["residual"]:
        result = result + vectors["value"]
    return {
        "weights": [one.tolist() for one in weights],
        "outputs": [one.tolist() for one in outputs],
        "result": result.tolist(),
    }


def corners(points: list[list[float]]) -> list[list[float]]:
    """The corners of the hull by brute force: points in no triangle and on no segment of the others."""

    def area(a: list[float], b: list[float], c: list[float]) -> float:
        return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])

    def between(p: list[float], a: list[float], b: list[float]) -> bool:
        dot = (a[0] - p[0]) * (b[0] - p[0]) + (a[1] - p[1]) * (b[1] - p[1])
        return area(a, b, p) == 0 and dot <= 0

    def covered(p: list[float], others: list[list[float]]) -> bool:
        if any(between(p, a, b) for a, b in permutations(others, 2)):
            return True
        return any(
            min(area(a, b, p), area(b, c, p), area(c, a, p)) > 0 for a, b, c in permutations(others, 3)
        )

    distinct = [list(p) for p in sorted({tuple(p) for p in points})]
    return [p for p in distinct if not covered(p, [q for q in distinct if q != p])]


def golden() -> dict[str, Any]:
    scores = [[0.5, -1.25, 3.0, 3.0], [1000.0, -1000.0, 999.0, 0.0]]
    every, some = [True] * 4, [True, True, False, True]
    cases = []
    for row in scores:
        for at in (0, 0.01, 0.3, 1, 7.5, 100, "inf"):
            for allowed in (every, some):
                weights = softmax(
                    torch.tensor([row], dtype=torch.float64), temperature(at), torch.tensor([allowed])
                )
                cases.append(
                    {"scores": row, "temperature": at, "allowed": allowed, "weights": weights[0].tolist()}
                )
    hulls = [
        [[0, 0], [2, 0], [2, 2], [0, 2], [1, 1], [1, 0], [2, 2]],
        [[1, 1], [1, 1]],
        [[0, 0], [1, 1], [3, 3], [2, 2]],
        [EXAMPLE["vectors"][role]["value"] for role in EXAMPLE["roles"]["fr"]],
        torch.randn(12, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(5)).tolist(),
    ]
    return {
        "softmax": cases,
        "states": [numbers_of(shown["state"]) for shown in STATES["states"]],
        "hulls": [{"points": points, "corners": corners(points)} for points in hulls],
    }


def test_the_golden_file_holds_what_python_computes() -> None:
    stored, now = json.loads(NUMBERS.read_text(encoding="utf-8")), golden()
    assert [len(stored[name]) for name in now] == [len(now[name]) for name in now]
    assert flat(stored) == pytest.approx(flat(now), abs=1e-12)


def flat(value: Any) -> list[float]:
    if isinstance(value, dict):
        return [x for one in value.values() for x in flat(one)]
    if isinstance(value, list):
        return [x for one in value for x in flat(one)]
    return [] if isinstance(value, str) else [float(value)]


@pytest.mark.parametrize("index", range(len(STATES["states"])))
def test_the_copied_lines_give_what_is_on_screen(index: int, capsys: pytest.CaptureFixture[str]) -> None:
    shown = STATES["states"][index]
    names: dict[str, Any] = {}
    exec(compile(shown["code"], f"state {index}", "exec"), names)
    expected = json.loads(NUMBERS.read_text(encoding="utf-8"))["states"][index]
    # float64 throughout; regard may order its sums otherwise than the definition does.
    for name in ("weights", "outputs", "result"):
        wanted = torch.tensor(expected[name], dtype=torch.float64)
        torch.testing.assert_close(names[name], wanted, atol=1e-12, rtol=0)
    lines = capsys.readouterr().out.splitlines()
    chosen = expected["weights"][shown["state"]["head"]][shown["state"]["chosen"]]
    assert [float(line.split()[-1]) for line in lines[:-1]] == pytest.approx(chosen, abs=5e-5)


@pytest.mark.parametrize("index", range(len(STATES["experiments"])))
def test_the_copied_experiment_draws_the_page_s_numbers(index: int) -> None:
    shown = STATES["experiments"][index]
    names: dict[str, Any] = {}
    exec(compile(shown["code"], f"experiment {index}", "exec"), names)
    for name in ("unscaled", "scaled"):
        assert names[name].tolist() == pytest.approx(shown[name]["weights"], abs=1e-9)


def test_the_corners_of_a_square_are_its_hull() -> None:
    assert corners([[0, 0], [2, 0], [2, 2], [0, 2], [1, 1], [1, 0]]) == [[0, 0], [0, 2], [2, 0], [2, 2]]


def test_lengthening_a_query_never_lowers_the_best_weight() -> None:
    query, key, value = (example(kind, "fr") for kind in ("query", "key", "value"))
    best = [
        regard.attention(query * f, key, value, return_weights=True).weights[0, 0].amax(-1)
        for f in (0.5, 1, 2, 4)
    ]
    assert all((after >= before).all() for before, after in pairwise(best))


if __name__ == "__main__":
    text = json.dumps(golden(), indent=1)
    NUMBERS.write_text(text + "\n", encoding="utf-8")
