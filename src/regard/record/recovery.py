"""What a recording that never ended can still tell: the records of its file, told again.

A process that was killed, a disk that was full, a model that raised: the file holds every attention that was
complete by then. The same code as ever makes a recording of them; a note says that more was to come.
"""

from __future__ import annotations

from dataclasses import replace
from os import PathLike
from typing import Any

from torch import Tensor

from regard.attend import masks
from regard.attend.mask import Mask
from regard.errors import DamagedFile
from regard.record.assemble import Heard, Run
from regard.record.choosing import Calls
from regard.record.generation import Chain, Position
from regard.record.header import axis_in, proof_in
from regard.record.heads import Cut
from regard.record.journal import records
from regard.record.keeping import Keep
from regard.record.origin import Origin
from regard.record.pieces import Place
from regard.record.recording import Recording
from regard.record.runs import recordings_of
from regard.record.sequences import Prepared
from regard.record.shelf import Shelf
from regard.words import say


def recovered(path: str | PathLike[str]) -> Recording:
    """The recording of what was complete in a file that was never finished; its last run, if there were more.

    Raises:
        DamagedFile: nothing in it was complete.
    """
    teller = _Teller()
    with open(path, "rb") as file:
        for event, tensors in records(file):
            teller.tell(event, tensors)
    runs = [run for run in teller.runs if not run.empty]
    if teller.origin is None or not runs:
        raise DamagedFile(say("errors.nothing_complete", path=str(path)))
    for run in runs:
        _drop_last_step_unless_complete(run)
    last = list(recordings_of(teller.origin, runs, teller.prepared, 0, Shelf(), Keep()))[-1]
    note = say("notes.recovered", count=teller.calls)
    provenance = replace(last.provenance, notes=(note, *last.provenance.notes))
    return Recording(last.sites, last.sequences, provenance)


class _Teller:
    """Runs as they were when the last record was written."""

    def __init__(self) -> None:
        self.origin: Origin | None = None
        self.prepared: Prepared | None = None
        self.runs: list[Run] = []
        self.calls = 0
        self._rules: dict[int, Mask] = {}
        self._biases: dict[str, Tensor] = {}

    def tell(self, event: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """What one record says."""
        kind = event.pop("event")
        if kind == "origin":
            self.origin = Origin(**{**event, "notes": tuple(event["notes"])})
        elif kind == "run":
            self.runs.append(Run(tensors, apart=event["apart"]))
            if (known := event.get("prepared")) is not None:
                texts = tuple(map(tuple, known["texts"]))
                axis = None if known["axis"] is None else axis_in(known["axis"])
                self.prepared = Prepared(axis, texts, known["truncated"], tuple(known["notes"]))
        elif kind == "step":
            self._step(self.runs[event["run"]], event["past"], tensors)
        elif kind == "order":
            chain = self.runs[event["run"]].chain
            if chain is not None:
                chain.reorder(tensors["order"])
        elif kind == "rule":
            self._rules[event["number"]] = masks.from_state(event["state"], tensors)
        elif kind == "bias":
            self._biases[event["name"]] = tensors["bias"]
        elif kind == "call" and "proof" in event:  # one that proved wrong is none
            self._call(self.runs[event["run"]], event, tensors)

    def _step(self, run: Run, past: int, inputs: dict[str, Tensor]) -> None:
        if run.chain is None:
            run.chain = Chain(None)
            if run.heard:
                run.chain.adopt(run.inputs, run.heard, run.calls)
                run.heard, run.calls = [], Calls()
        run.chain.begin(past, inputs)

    def _call(self, run: Run, event: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        position = event["position"]
        heard = Heard(
            **{name: event[name] for name in ("name", "kind", "scale", "softcap", "kernel", "door")},
            query=tensors["query"],
            key=tensors["key"],
            mask=None,
            triangle=False,
            bias=None if event["bias"] is None else self._biases[event["bias"]],
            sinks=tensors.get("sinks"),
            versions=(0, 0),
            place=Place(**event["place"]),
            rule=None if event["rule"] is None else self._rules[event["rule"]],
            position=None if position is None else Position(**position),
            heads=None if event["heads"] is None else Cut(tuple(event["heads"][0]), *event["heads"][1:]),
            evidence=proof_in(event["proof"]),
        )
        self.calls += 1
        at = run if run.chain is None else run.chain.steps[-1]
        at.heard.append(heard)
        at.calls.note(heard.query, heard.kind)


def _drop_last_step_unless_complete(run: Run) -> None:
    """A step in which some attentions are missing gives no rows of the others."""
    steps = run.chain.steps if run.chain is not None else []
    if len(steps) > 1 and len(steps[-1].heard) < len(steps[0].heard):
        steps.pop()
        steps[-1].order = None
