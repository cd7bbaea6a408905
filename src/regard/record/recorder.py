"""`Recorder`: a context in which a model's attentions are recorded while its own kernels compute them."""

from __future__ import annotations

import threading
from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from os import PathLike
from random import Random
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor, nn

from regard.errors import InvalidArgument, NothingToRecord
from regard.models.loading import Subject
from regard.record import again, intercept, interface, proof, watch
from regard.record.call import Call, NotUnderstood, understand
from regard.record.choosing import Choice
from regard.record.course import Course
from regard.record.filing import FileShelf
from regard.record.heard import Heard, Run
from regard.record.keeping import Form, Keep
from regard.record.layers import kind_of
from regard.record.media import subject_of
from regard.record.memory import explained, is_lack_of_memory
from regard.record.origin import Origin
from regard.record.progress import Count, Progress
from regard.record.recording import Recording
from regard.record.runs import asked, recordings_of
from regard.record.sequences import Prepared
from regard.record.shelf import MainMemory, Shelf
from regard.record.site import Proof
from regard.record.structure import Structure
from regard.words import say


class Recorder:
    """Record whatever runs through a model inside the block.

    Calls that fill one cache, as those of `generate`, give one recording. Only references to queries, keys
    and masks are kept, of a step its new keys; the model computes as it would without. What was changed for
    the time of the block is restored after it, also when the model raises. Recorders may be nested, and live
    in several threads at once: each hears the calls of its own thread, of its own model.

    Args:
        model: a `Subject` or a module.
        tokenizer: to show tokens as text, when `model` is a bare module; or a processor that holds one.
        rows: query positions of each site whose output is recomputed and compared (the proof); 0 for none.
        seed: which random ones.
        any_thread: hear calls from every thread, as when `generate` runs in a thread of its own.
        sequence: which of the sequences that `generate` returns for each item is recorded: 0 is the best
        beam.
        layers, heads, kinds: which attentions, and which of their heads, are kept; all by default. Where the
        names of the model's modules say the layer, what is not wanted is never kept; else it is dropped
        after the block.
        keep: "qk", queries and keys, from which every weight follows; "weights", n · n numbers a head; or
        "top_k", the `k` largest weights of each row.
        k: how many these are; 32 by default.
        dtype: number type of what is kept, such as torch.float16; the recording says what it costs.
        offload: copy queries and keys to main memory, call by call; else they stay on the model's device.
        path: write them to this file instead, call by call, so that a recording may be larger than memory.
        Killed in the middle, it leaves path.partial, of which `regard.open` reads what was complete.
        progress: called with ("recording", attentions heard, attentions there are) while the model runs, and
        with ("generating", tokens written, tokens asked for); what it raises ends the run.

    >>> with regard.Recorder(model) as recorder:  # doctest: +SKIP
    ...     model(**inputs)
    >>> recorder.recording.weights(layer=0).shape  # doctest: +SKIP
    torch.Size([12, 7, 7])
    """

    def __init__(
        self,
        model: Subject | nn.Module,
        *,
        tokenizer: Any = None,
        rows: int = proof.ROWS,
        seed: int = 0,
        any_thread: bool = False,
        sequence: int = 0,
        layers: Collection[int] | None = None,
        heads: Collection[int] | None = None,
        kinds: Collection[str] | None = None,
        keep: Form = "qk",
        k: int | None = None,
        dtype: torch.dtype | None = None,
        offload: bool = False,
        path: str | PathLike[str] | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.subject = subject_of(model, tokenizer)
        if rows < 0:
            raise InvalidArgument(f"rows must be at least 0; got {rows}.")
        self._rows, self._random, self._any_thread = rows, Random(seed), any_thread
        self._names: dict[int, str] = {}  # of the model's modules, by identity
        self._thread = 0
        self._recordings: tuple[Recording, ...] | None = None
        self._chosen: dict[tuple[int, torch.device], Tensor] = {}
        self._unproven: dict[str, Proof] = {}
        self._not_understood: str | None = None
        self._entered = False
        self._sequence = sequence
        self._keep = Keep(keep, layers, heads, kinds, k, dtype)
        self._choice = Choice(self._keep, self.subject.model)
        self._count = None if progress is None else Count(progress, self.subject.model)
        self._changed = ExitStack()
        self._path, self._shelf = path, MainMemory() if offload else Shelf()
        self.heard_anything = False
        self.prepared: Prepared | None = None  # what `record` knows of the tokens
        self.chooses_early = True  # leave out at once what names say is not wanted; else after the block

    @property
    def recordings(self) -> tuple[Recording, ...]:
        """One recording for each call of the model inside the block, and one for each generation."""
        if self._recordings is None:
            raise NothingToRecord(say("errors.recorder_not_done"))
        return self._recordings

    @property
    def recording(self) -> Recording:
        """The recording of the one call of the model inside the block."""
        if len(self.recordings) > 1:
            raise InvalidArgument(
                f"the model ran {len(self.recordings)} times; recorder.recordings holds a recording for each."
            )
        return self.recordings[0]

    def __enter__(self) -> Self:
        if self._entered:
            raise InvalidArgument("a Recorder serves one block; make another one for the next.")
        self._entered = True
        self._thread = threading.get_ident()
        structure = Structure.of(self.subject.model)
        self._origin, self._names = Origin.of(self.subject, structure), structure.names
        model = self.subject.model
        self._course = Course(
            model, self.watches, self._shelf, self._choice, self._count, self.prepared, self._changed
        )
        with ExitStack() as stack:  # whatever fails here, nothing stays changed
            watch.watch(model, self._course, stack, compiled=structure.compiled)
            interface.listen(self)
            stack.callback(interface.leave, self)
            intercept.listen(self, structure)
            stack.callback(intercept.leave, self)
            if self._path is not None:
                self._shelf = self._course.shelf = FileShelf(self._path, self._origin, self._keep)
            self._changed.push(stack.pop_all())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._changed.close()
        self._chosen.clear()
        self._choice.forget()
        runs = self._course.end()
        if error is not None:
            self._shelf.gave_up(error)
            if is_lack_of_memory(error):
                error.add_note(str(explained(error)))
            return
        try:
            self._recordings = self._finished(runs)
        except BaseException as error:
            self._shelf.gave_up(error)
            raise

    def _finished(self, runs: list[Run]) -> tuple[Recording, ...]:
        """The recordings of the block, which ended well."""
        if self._course.at_once:
            raise InvalidArgument(say("errors.threads_at_once", model=self.subject.name))
        if self._not_understood is not None:
            self.heard_anything = True
            raise NothingToRecord(
                say("errors.not_understood", model=self.subject.name, reason=self._not_understood)
            )
        self.heard_anything = not all(run.empty for run in runs)
        if self.heard_anything:
            heard = [run for run in runs if not run.empty]
            read = partial(again.read, self, sequence=self._sequence)
            made = recordings_of(
                self._origin, heard, self.prepared, self._sequence, self._shelf, self._keep, read
            )
        else:
            made = asked(self.subject, runs, self.prepared, self._sequence, self._keep)
        return self._shelf.finished(tuple(made))

    def watches(self, module: nn.Module) -> bool:
        """Whether calls of this module are recorded. Part of `interface.Listener`."""
        if id(module) not in self._names:
            return False
        # Gradient checkpointing runs the forward again during backward: that is no new look.
        if torch._C._current_graph_task_id() != -1:
            return False
        if again.is_private_to_another(self):
            return False
        return self._any_thread or threading.get_ident() == self._thread

    def hear(self, kernel: str, arguments: dict[str, Any], output: Tensor) -> None:
        """Keep one call. Part of `interface.Listener`."""
        module = arguments["module"]
        try:
            self.take(module, understand(kernel, arguments), output, door="interface", kind="")
        except NotUnderstood as error:
            self.refuse(module, str(error))

    def take(self, module: nn.Module, call: Call, output: Tensor, *, door: str, kind: str) -> None:
        """Keep one call that has been read. Part of `CallListener`."""
        if self._count is not None:
            self._count.heard()
        name = self._names[id(module)]
        if not kind:
            kind = kind_of(module, name, call.causal)
            if door != "interface" and kind == "self":
                kind = ""  # such modules do not say whether they are causal: their masks will
        run, chain = self._course.present()
        calls = run.calls if chain is None else chain.steps[-1].calls
        calls.note(call.query, kind)
        known = len(calls.left_out)
        if self.chooses_early and self._choice.leaves_out(name, kind, call, calls):
            self._shelf.passed(run.number, call.query, kind, calls.left_out[known:])
            return
        heads = self._choice.cut_of(call)
        if chain is None:
            evidence = self._compare(call, output)
            heard = Heard.of(call, name, kind, evidence, self._shelf, door, heads=heads)
            run.heard.append(self._shelf.noted(run.number, heard))
            return
        proves = len(chain.steps) == 1 or chain.checks
        evidence = self._compare(call, output) if proves else proof.unchecked("")
        key, position = chain.fresh(call, name, kind)
        call = replace(call, key=key)
        heard = Heard.of(call, name, kind, evidence, self._shelf, door, position, heads)
        chain.steps[-1].heard.append(self._shelf.noted(run.number, heard))

    def refuse(self, module: nn.Module, reason: str) -> None:
        """Remember a call that cannot be read. Part of `CallListener`."""
        self._not_understood = f"{self._names[id(module)]} ({reason})"

    def _compare(self, call: Call, output: Tensor) -> proof.Evidence | Proof:
        if not self._rows or call.dropout > 0:
            key = "notes.dropout" if call.dropout > 0 else "notes.no_rows"
            if key not in self._unproven:
                self._unproven[key] = proof.unchecked(say(key))
            return self._unproven[key]
        queries = call.query.shape[2]
        place = (queries, call.query.device)
        if place not in self._chosen:
            self._chosen[place] = proof.choose_rows(queries, self._rows, self._random).to(call.query.device)
        try:
            with torch.no_grad():
                return proof.gather(call, output, self._chosen[place])
        except (MemoryError, RuntimeError) as error:  # the model need not stop for a comparison
            if not is_lack_of_memory(error):
                raise
            return proof.unchecked(say("notes.not_enough_memory"))

    def like(self) -> Recorder:
        """Another recorder of the same model, for a block of its own."""
        return Recorder(self.subject, rows=self._rows, seed=self._random.randrange(1 << 30))
