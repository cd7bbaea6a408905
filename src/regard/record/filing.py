"""Queries and keys straight to a file while the model runs, so that a recording may be larger than memory.

    run      each call is a record, appended and mapped back: memory holds no more than the layer at work
    end      the header is written in front, into room left for it; what lies between the tensors is named
             too, so that the file is whole safetensors without a byte being moved; then it is renamed
    a kill   leaves NAME.partial, which `regard.open` reads as far as it was complete (recovery.py)

Where much of the file is no part of the recording (steps of a generation, which are put together) the
recording is written anew beside it, one tensor at a time.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.attend.mask import Mask
from regard.errors import UnfaithfulRecording
from regard.record import store
from regard.record.appended import Appended
from regard.record.choosing import LeftOut
from regard.record.dtypes import DTYPES
from regard.record.header import axis_out, proof_out, to_header
from regard.record.heard import Heard, Run, prove, versions_of
from regard.record.journal import Laid, pack
from regard.record.keeping import Keep
from regard.record.origin import Origin
from regard.record.recording import Recording
from regard.record.rule import rule_of
from regard.record.sequences import Prepared
from regard.record.shelf import Shelf, nbytes
from regard.words import say

_ROOM = 1 << 16  # for the header of a recording, and ...
_ROOM_A_TOKEN = 160  # ... for each token of its text
_SMALL = 1 << 24  # bytes of a recording that are quickly written once more, without the room and the records
_WASTE = 0.25  # share of the file beside the recording's tensors, from which it is written anew


class FileShelf(Shelf):
    """Keeps queries and keys in a file that becomes the recording's own."""

    def __init__(self, path: str | PathLike[str], origin: Origin, keep: Keep) -> None:
        """Open NAME.partial beside `path`; raises OutputError where that is not possible."""
        self.path, self._target = path, store.target_of(path)
        self.partial = self._target.with_name(f"{self._target.name}.partial")
        self._origin, self._wanted = origin, keep.choice()
        self._file = Appended(self.partial, path)
        self._scratch: Appended | None = None
        self._rules: dict[Any, tuple[int | None, str | None, Any]] = {}  # the masks noted, and what they were
        self._complete = 0
        self._laid: dict[tuple[int, int], Laid] = {}  # (address, bytes) of a tensor here -> where it lies

    def keep(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """Both as they are: they are written when the call is noted."""
        return query.detach(), key.detach()

    def zeros(self, like: Tensor, shape: Sequence[int]) -> Tensor:
        """Room in a file without a name, which the system may write out of memory."""
        if self._scratch is None:
            self._hidden = self._target.with_name(f".{self._target.name}.{os.getpid()}.scratch")
            self._scratch = Appended(self._hidden, self.path)
            with suppress(OSError):  # some systems keep the name of an open file
                self._hidden.unlink()
        return self._scratch.room(like.dtype, tuple(shape))

    def began(self, run: Run, prepared: Prepared | None) -> None:
        """Note the run, and what is known of its tokens."""
        event: dict[str, Any] = {"event": "run", "run": run.number, "apart": run.apart}
        if prepared is not None:
            event["prepared"] = {
                "axis": None if prepared.axis is None else axis_out(prepared.axis),
                "texts": prepared.texts,
                "truncated": prepared.truncated,
                "notes": prepared.notes,
            }
        self._write(event, _small(run.inputs))

    def passed(self, run: int, query: Tensor, kind: str, left_out: Sequence[LeftOut]) -> None:
        """Note the call: layers are counted with it."""
        event: dict[str, Any] = {"event": "passed", "run": run, "kind": kind, "left_out": None}
        tensors = {"queries": query[:, :0, :, :0].detach().clone()}
        for one in left_out:  # one at most
            event["left_out"] = [one.name, one.layer, one.kind, one.by_layer]
            tensors |= {"query": one.query, "key": one.key}
        self._write(event, tensors)

    def stepped(self, run: int, past: int, inputs: dict[str, Tensor]) -> None:
        """Note the step."""
        self._write({"event": "step", "run": run, "past": past}, _small(inputs))

    def reordered(self, run: int, order: Tensor) -> None:
        """Note the order."""
        self._write({"event": "order", "run": run}, {"order": order})

    def noted(self, run: int, heard: Heard) -> Heard:
        """Write the call; its queries and keys are from now on those in the file."""
        (rule, bias), cut = self._mask(heard), heard.heads
        event: dict[str, Any] = {
            "event": "call",
            "run": run,
            **{name: getattr(heard, name) for name in ("name", "kind", "scale", "softcap", "kernel", "door")},
            "place": asdict(heard.place),
            "position": None if heard.position is None else asdict(heard.position),
            "heads": None if cut is None else [cut.numbers, cut.total, cut.kv],
            "rule": rule,
            "bias": bias,
        }
        with suppress(UnfaithfulRecording):  # is raised at the end, as by any recorder
            proven = prove(heard)
            heard = replace(heard, evidence=proven)
            event["proof"] = proof_out(proven)
        tensors = {"query": heard.query, "key": heard.key}
        if heard.sinks is not None:
            tensors["sinks"] = heard.sinks.detach()
        written = self._write(event, tensors)
        self._complete += 1
        heard = replace(heard, query=written["query"], key=written["key"])
        return replace(heard, versions=versions_of(heard))

    def finished(self, recordings: tuple[Recording, ...]) -> tuple[Recording, ...]:
        """Give the file its final form and name, and open it; a second recording goes to NAME-2."""
        opened = []
        in_place = len(recordings) == 1 and self._complete_in_place(recordings[0])
        for number, recording in enumerate(recordings, 1):
            suffix = "" if number == 1 else f"-{number}"
            place = self._target.with_name(f"{self._target.stem}{suffix}{self._target.suffix}")
            if not in_place:
                store.save(recording, place)
            opened.append(store.open(place))
        self._close()
        return tuple(opened)

    def gave_up(self, error: BaseException | None) -> None:
        """Leave what was complete, and say so with the error; leave nothing where nothing was."""
        if not self._complete:
            self._close()
            return
        self._file.close()
        self._leave_scratch()
        if error is not None:
            error.add_note(say("errors.partial_left", path=self.partial, count=self._complete))

    def _close(self) -> None:
        self._file.close()
        for unused in (self.partial, self._leave_scratch()):
            if unused is not None:
                with suppress(OSError):
                    unused.unlink()

    def _leave_scratch(self) -> Path | None:
        """Let go of the file without a name; returns the name that it may have."""
        if self._scratch is None:
            return None
        self._scratch.close()
        return self._hidden

    def _write(self, event: dict[str, Any], tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Append a record; returns its tensors as they lie in the file."""
        if self._file.end == 0:
            tokens = max((t.numel() for t in tensors.values()), default=0)
            self._file.start(_ROOM + _ROOM_A_TOKEN * tokens)
            self._write({"event": "origin", "wanted": self._wanted, **self._origin.facts()}, {})
        tensors = {name: _storable(tensor) for name, tensor in tensors.items()}
        head, places = pack(event, tensors)
        at = self._file.leave(len(head))
        laid = {
            name: replace(place, start=self._file.append_tensor(tensors[name]))
            for name, place in places.items()
        }
        self._file.write(head, at)  # last, as it says that all of it is there
        written = {name: self._file.view(place) for name, place in laid.items()}
        self._laid |= {(written[name].data_ptr(), place.bytes): place for name, place in laid.items()}
        return written

    def _mask(self, heard: Heard) -> tuple[int | None, str | None]:
        """The names of the rule and the bias of a call; what layers share is noted once."""
        seen = heard.key.shape[2] if heard.position is None else heard.position.seen
        lengths = (heard.query.shape[2], seen)
        known = (id(heard.mask), id(heard.rule), id(heard.bias), heard.triangle, lengths)
        if known not in self._rules:
            mask = heard.mask
            if mask is not None and mask.shape[-1] > seen:
                mask = mask[..., :seen]
            rule, bias = rule_of(mask, heard.triangle, lengths)
            if heard.rule is not None:
                rule = heard.rule if rule is None else rule & heard.rule
            if heard.bias is not None:
                bias = heard.bias.detach() + (0 if bias is None else bias)
            held = (heard.mask, heard.rule, heard.bias)  # kept alive, so that an id stays its own
            self._rules[known] = (self._note_rule(rule), self._note_bias(bias), held)
        return self._rules[known][:2]

    def _note_rule(self, rule: Mask | None) -> int | None:
        if rule is None:
            return None
        state, tensors = rule.state()
        number = len(self._rules)
        self._write({"event": "rule", "number": number, "state": state}, tensors)
        return number

    def _note_bias(self, bias: Tensor | None) -> str | None:
        if bias is None:
            return None
        name = f"bias.{len(self._rules)}"
        self._write({"event": "bias", "name": name}, {"bias": bias})
        return name

    def _complete_in_place(self, recording: Recording) -> bool:
        """Make the partial file the recording, if its tensors lie there and its header finds room."""
        header, tensors = to_header(recording)
        places: dict[str, Laid] = {}
        taken: set[int] = set()
        for name, tensor in tensors.items():
            laid = self._laid.get((tensor.data_ptr(), nbytes(tensor))) if tensor.is_contiguous() else None
            if laid is not None and laid.start not in taken and laid.dtype == tensor.dtype:
                places[name] = replace(laid, shape=tuple(tensor.shape))
                taken.add(laid.start)
        used = sum(laid.bytes for laid in places.values())
        if used < _SMALL or self._file.end > used * (1 + _WASTE):
            return False
        for name in tensors.keys() - places.keys():
            tensor = tensors[name]
            start = self._file.append_tensor(tensor)
            places[name] = Laid(tensor.dtype, tuple(tensor.shape), start)
        encoded = store.encoded(header, _entries(places, self._file.first, self._file.end))
        if len(encoded) > self._file.first - 8:
            return False
        self._file.complete(encoded)
        store.rename(self.partial, self._target, self.path)
        return True


def _entries(places: dict[str, Laid], first: int, end: int) -> dict[str, Laid]:
    """`places` and what lies between them, counted from the first byte behind the header, in order."""
    entries: dict[str, Laid] = {}
    at = first
    ordered = sorted(places.items(), key=lambda item: (item[1].start, item[1].bytes))
    for name, laid in [*ordered, ("", Laid(torch.uint8, (0,), end))]:
        if laid.start > at:
            entries[f"between.{len(entries)}"] = Laid(torch.uint8, (laid.start - at,), at - first)
        if name:
            entries[name] = replace(laid, start=laid.start - first)
        at = laid.start + laid.bytes
    return entries


def _small(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """What tells the tokens of a run: ids, masks and segments, no images."""
    return {name: t for name, t in inputs.items() if t.ndim <= 2 and not t.is_floating_point()}


def _storable(tensor: Tensor) -> Tensor:
    """A tensor of a type that files know; whole numbers of other widths become 64 bits wide."""
    return tensor if tensor.dtype in DTYPES else tensor.long()
