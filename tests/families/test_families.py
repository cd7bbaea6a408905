"""For every family of models: recorded weights are the model's own, or the model is refused with a reason.

`REGARD_FAMILIES=write` makes the last test write docs/families.md; else it holds the page to what was found.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch
import transformers

import families
import families_table
from families import Family, Outcome
from regard.attend.tiles import Scores
from regard.record import assemble
from regard.record.unseen import Unseen

ALL = families.families()
NAMED = {family.name: family for family in ALL}


@pytest.fixture(scope="session")
def outcomes() -> dict[str, Outcome]:
    """What was found so far, by family."""
    return {}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """These models are so small that a second thread only waits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("family", ALL, ids=lambda family: f"{family.kind}-{family.name}")
def test_recorded_weights_equal_eager_or_the_model_is_refused(
    family: Family, outcomes: dict[str, Outcome]
) -> None:
    try:
        outcome = families.outcome(family)
    except Exception:
        if families_table.committed()[0] != transformers.__version__:
            pytest.skip("this version of transformers builds the family in another way, or not at all")
        raise
    outcomes[family.name] = outcome
    assert outcome.verdict in ("recorded", "in part", "refused"), outcome.reason
    assert outcome.verdict == "recorded" or len(outcome.reason) > 20


def test_a_recording_that_is_slightly_off_is_called_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Scores.weights
    monkeypatch.setattr(Scores, "weights", lambda *args: right(*args) * (1 + 1e-4))
    outcome = families.outcome(NAMED["llama"])
    assert outcome.verdict == "wrong"
    assert "weights differ by" in outcome.reason


def test_an_attention_that_is_left_out_in_silence_is_called_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assemble, "_looks", lambda heard: [[one] for one in heard[:-1]])
    monkeypatch.setattr(Unseen, "notes", lambda self: ())
    outcome = families.outcome(NAMED["llama"])
    assert outcome.verdict == "wrong"
    assert outcome.reason == "attentions missing without a word: 1"


def test_at_least_sixty_families_of_every_kind_are_tried() -> None:
    assert len({family.name for family in ALL}) == len(ALL) >= 60
    assert {family.kind for family in ALL} == set(families_table.TITLES)


def test_the_committed_table_is_what_was_found(outcomes: dict[str, Outcome]) -> None:
    if os.environ.get("REGARD_FAMILIES") == "write":
        assert len(outcomes) == len(ALL), "the table is written from a run of all families"
        families_table.PAGE.parent.mkdir(exist_ok=True)
        families_table.PAGE.write_text(families_table.page(outcomes.values()), encoding="utf-8")
    version, rows = families_table.committed()
    if version != transformers.__version__:
        pytest.skip(f"the table is of transformers {version}")
    assert {name: rows.get(name) for name in outcomes} == {
        name: families_table.facts(outcome) for name, outcome in outcomes.items()
    }
    if len(outcomes) == len(ALL):
        assert rows.keys() == outcomes.keys()
