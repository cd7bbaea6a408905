"""What a recording that never ended can still tell: the records of its file, told again.

A process that was killed, a disk that was full, a model that raised: the file holds every attention that was
complete by then. The same code as ever makes a recording of them; a note says that more was to come.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from math import prod
from os import PathLike
from typing import Any

from torch import Tensor

from regard.attend import masks
from regard.attend.mask import Mask
from regard.errors import DamagedFile
from regard.record.choosing import Calls, LeftOut
from regard.record.generation import Chain, Position
from regard.record.header import axis_in, from_header, proof_in, to_header
from regard.record.heads import Cut
from regard.record.heard import Heard, Run
from regard.record.journal import records
from regard.record.keeping import Keep
from regard.record.origin import Origin
from regard.record.pieces import Place
from regard.record.recording import Recording
from regard.record.runs import recordings_of
from regard.record.sequences import Prepared
from regard.record.shelf import Shelf
from regard.words import say

_ROOM, _TIMES = 1 << 28, 16  # bytes of a recording beside those of the file, and for each of these


def recovered(path: str | PathLike[str]) -> Recording:
    """The recording of what was complete in a file that was never finished; its last run, if there were more.

    Raises:
        DamagedFile: nothing in it was complete.
    """
    teller = _Teller()
    with open(path, "rb") as file:
        shelf = _Bounded(os.fstat(file.fileno()).st_size)
        for event, tensors in records(file):
            teller.tell(event, tensors)
    for run in teller.runs:
        _drop_last_step_unless_complete(run)
    runs = [run for run in teller.runs if run.apart or _holds_something(run)]
    if teller.origin is None or not any(map(_holds_something, runs)):
        raise DamagedFile(say("errors.nothing_complete", path=str(path)))
    while not _holds_something(runs[-1]):
        runs.pop()
    last = list(recordings_of(teller.origin, runs, teller.prepared, 0, shelf, Keep()))[-1]
    note = say("notes.recovered", count=teller.calls)
    provenance = replace(last.provenance, notes=(note, *last.provenance.notes))
    sites = tuple(site for site in last.sites if site.heads)  # some layers may have none of the wanted
    if not sites:
        raise DamagedFile(say("errors.nothing_complete", path=str(path)))
    # Raises where something does not fit together, as in any file.
    whole = from_header(*to_header(replace(last, sites=sites, provenance=provenance)))
    wanted = Keep(**teller.wanted).within(whole)
    if not any(wanted.wants(site.layer, site.kind) for site in whole.sites) or wanted.heads == []:
        raise DamagedFile(say("errors.nothing_complete", path=str(path)))
    return wanted.of(whole)


class _Bounded(Shelf):
    """Room for no more than a file of that size can have been about: it may have been made by hand."""

    def __init__(self, size: int) -> None:
        self._left = _ROOM + _TIMES * size

    def zeros(self, like: Tensor, shape: Sequence[int]) -> Tensor:
        """Room, while there is some."""
        self._left -= prod(shape) * like.element_size()
        if self._left < 0:
            raise ValueError(f"a step at position {shape[2]}")
        return super().zeros(like, shape)


class _Teller:
    """Runs as they were when the last record was written."""

    def __init__(self) -> None:
        self.origin: Origin | None = None
        self.prepared: Prepared | None = None
        self.runs: list[Run] = []
        self.wanted: dict[str, Any] = {}
        self.calls = self._crossed = 0
        self._rules: dict[int, Mask] = {}
        self._biases: dict[str, Tensor] = {}

    def tell(self, event: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """What one record says."""
        kind = event.pop("event")
        if kind == "origin":
            self.wanted = event.pop("wanted")
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
        elif kind == "passed":
            self._passed(self.runs[event["run"]], event, tensors)
        elif kind == "call" and "proof" in event:  # one that proved wrong is none
            self._call(self.runs[event["run"]], event, tensors)

    def _step(self, run: Run, past: int, inputs: dict[str, Tensor]) -> None:
        if run.chain is None:
            run.chain = Chain(None)
            if run.calls.items:
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
            versions=(0,) * 4,
            place=Place(**event["place"]),
            rule=None if event["rule"] is None else self._rules[event["rule"]],
            position=None if position is None else Position(**position),
            heads=None if event["heads"] is None else Cut(tuple(event["heads"][0]), *event["heads"][1:]),
            evidence=proof_in(event["proof"]),
        )
        self._check(heard)
        self.calls += 1
        at = run if run.chain is None else run.chain.steps[-1]
        at.heard.append(heard)
        at.calls.note(heard.query, heard.kind)

    def _check(self, heard: Heard) -> None:
        """Raise where a call in a chain says that it saw more keys than there were."""
        if (at := heard.position) is None:
            return
        if heard.kind == "cross":
            self._crossed = max(self._crossed, heard.key.shape[2])
            most = self._crossed
        else:
            most = at.query + heard.query.shape[2]
        if not 0 <= at.key <= most or not 0 <= at.origin <= most or not 0 <= at.seen <= most or at.query < 0:
            raise ValueError(f"position of {heard.name}: {at}")

    def _passed(self, run: Run, event: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        calls = (run if run.chain is None else run.chain.steps[-1]).calls
        calls.note(tensors["queries"], event["kind"])
        if event["left_out"] is not None:
            name, layer, kind, by_layer = event["left_out"]
            one = LeftOut(name, layer, kind, by_layer, query=tensors["query"], key=tensors["key"])
            calls.left_out.append(one)


def _holds_something(run: Run) -> bool:
    """Whether an attention of this run was kept."""
    steps = run.chain.steps if run.chain is not None else []
    return bool(run.heard) or any(step.heard for step in steps)


def _drop_last_step_unless_complete(run: Run) -> None:
    """A step in which some attentions are missing gives no rows of the others."""
    steps = run.chain.steps if run.chain is not None else []
    if len(steps) > 1 and len(steps[-1].heard) < len(steps[0].heard):
        steps.pop()
        steps[-1].order = None
