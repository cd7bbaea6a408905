"""Every example runs, checks itself, and the training example really learns."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest
import torch

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("[0-9]*.py"))
TRAINING = Path(__file__).parents[1] / "examples" / "learn_to_reverse.py"


@pytest.fixture(autouse=True)
def _one_thread():
    """The models are too small for two, and waiting for each other costs more than the work."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_there_is_an_example_for_every_idea():
    assert [path.stem[3:] for path in EXAMPLES] == [
        "scores",
        "scaling",
        "masks",
        "heads",
        "positions",
        "cache",
        "online_softmax",
        "linear",
        "window",
        "sparse",
        "additive",
        "merging",
        "next_word",
    ]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_and_its_own_checks_hold(path, capsys):
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out


def test_training_learns_to_write_backwards_and_draws_its_loss(tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    picture = tmp_path / "loss.svg"
    monkeypatch.setattr(sys, "argv", [str(TRAINING), str(picture)])
    runpy.run_path(str(TRAINING), run_name="__main__")
    assert "written backwards without a mistake" in capsys.readouterr().out
    assert picture.read_text(encoding="utf-8").count("<path") > 10


def test_fewer_steps_already_beat_guessing_by_far():
    example = runpy.run_path(str(TRAINING), run_name="example")
    model, losses = example["train"](steps=150)
    assert losses[0] > 2.0
    assert losses[-1] < 0.2
    assert example["accuracy"](model, size=200) >= 0.95
