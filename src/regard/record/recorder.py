"""`Recorder`: a context in which a model's attentions are recorded while its own kernels compute them."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Collection, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from random import Random
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor, nn

from regard.errors import InvalidArgument, NothingToRecord
from regard.models.loading import Subject
from regard.record import again, intercept, interface, proof, returned, watch
from regard.record.assemble import Heard, Run
from regard.record.call import Call, NotUnderstood, understand
from regard.record.choosing import Calls, Choice
from regard.record.filing import FileShelf
from regard.record.generation import Chain, cache_in, cached_tokens
from regard.record.keeping import Form, Keep
from regard.record.layers import kind_of
from regard.record.media import subject_of
from regard.record.memory import explained, is_lack_of_memory
from regard.record.origin import Origin
from regard.record.progress import Count, Progress
from regard.record.recording import Recording
from regard.record.runs import marked, recordings_of
from regard.record.sequences import Prepared
from regard.record.shelf import MainMemory, Shelf
from regard.record.site import Proof
from regard.record.stitch import prompt_length
from regard.record.unseen import has_attention
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
        self._names = watch.names_of(self.subject.model)
        self._origin = Origin.of(self.subject)
        self._thread = self._by = 0  # in which the block runs, and the last call of the model
        self._at_once = False
        self._runs: list[Run] = []
        self._recordings: tuple[Recording, ...] | None = None
        self._chosen: dict[tuple[int, torch.device], Tensor] = {}
        self._not_understood: str | None = None
        self._entered = self._running = False
        self._sequence = sequence
        self._keep = Keep(keep, layers, heads, kinds, k, dtype)
        self._choice = Choice(self._keep, self.subject.model)
        self._count = None if progress is None else Count(progress, self.subject.model)
        self._generation: _Generation | None = None
        self._made: tuple[Run, weakref.ref[Any]] | None = None  # a run, and the cache that it made
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
        with ExitStack() as stack:  # whatever fails here, nothing stays changed
            watch.watch(self.subject.model, self, stack)
            interface.listen(self)
            stack.callback(interface.leave, self)
            intercept.listen(self, watch.modules_of(self.subject.model))
            stack.callback(intercept.leave, self)
            if self._path is not None:
                self._shelf = FileShelf(self._path, self._origin, self._keep)
            self._changed = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._changed.close()
        self._chosen.clear()
        self._choice.forget()
        runs, self._runs = self._runs, []
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
        if self._at_once:
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
            made = self._asked([run for run in runs if not run.apart])
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
        run = self._run()
        chain = run.chain if self._running else None
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
            return proof.unchecked(say("notes.dropout" if call.dropout > 0 else "notes.no_rows"))
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

    def begin_run(self, given: dict[str, Any]) -> None:
        """A call of the model begins. Part of `watch.RunListener`."""
        here = threading.get_ident()
        if self._running and self._by != here:
            self._at_once = True
        self._running, self._by = True, here
        if self._count is not None:
            self._count.begin_run()
        self._choice.forget()
        tensors = {name: value for name, value in given.items() if isinstance(value, Tensor)}
        cache = cache_in(given)
        past = cached_tokens(cache)
        if past is not None:
            self._step(self._chain_of(cache), past, tensors)
        elif self._generation is not None:  # without a cache each step reads all tokens anew
            if self._generation.chain is None:
                self._generation.chain = Chain(None)
                self._add(Run(tensors, chain=self._generation.chain))
            self._step(self._generation.chain, 0, tensors)
        else:
            silent = not self._runs or self._runs[0].empty  # it may have to be run again, just so
            chance = torch.get_rng_state() if silent else None
            self._add(Run(tensors, given=given, chance=chance))

    def _add(self, run: Run) -> Run:
        run.number = len(self._runs)
        self._runs.append(run)
        self._shelf.began(run, self.prepared)
        return run

    def _step(self, chain: Chain, past: int, tensors: dict[str, Tensor]) -> None:
        chain.begin(past, tensors)
        self._shelf.stepped(self._run_of(chain).number, past, tensors)

    def _run_of(self, chain: Chain) -> Run:
        return next(run for run in self._runs if run.chain is chain)

    def end_run(self, output: Any) -> None:
        """It ended. Part of `watch.RunListener`."""
        self._running = False
        if self._count is not None and output is not None:
            self._count.end_run()
        self._choice.forget()
        cache = cache_in(getattr(output, "__dict__", {}))
        run = self._runs[-1] if self._runs else None
        if run is not None:
            if not run.empty:
                run.given, run.chance = {}, None
            elif returned.can_be_asked(self.subject.model):
                again.remember(run, self.subject.model, output)
        if run is not None and run.chain is None and cached_tokens(cache):
            self._made = (run, weakref.ref(cache))

    def begin_generation(self, given: dict[str, Tensor], most: int) -> None:
        """`generate` begins. Part of `watch.RunListener`."""
        if self._count is not None:
            self._count.begin_generation(most)
        self._generation = _Generation(given)

    def end_generation(self, returned: Any, ends: tuple[int, ...]) -> None:
        """It ended. Part of `watch.RunListener`."""
        if self._count is not None:
            self._count.end_generation(well=returned is not None)
        generation, self._generation = self._generation, None
        if generation is not None and generation.chain is not None:
            sequences = getattr(returned, "sequences", returned)
            generation.chain.given = generation.given
            generation.chain.returned = sequences if isinstance(sequences, Tensor) else None
            generation.chain.ends = ends

    def _run(self) -> Run:
        """The run that a call belongs to: the model's, or one of its parts, called by itself."""
        if not self._runs or not (self._running or self._runs[-1].apart):
            self._add(Run({}, apart=True))
        return self._runs[-1]

    def _chain_of(self, cache: Any) -> Chain:
        """The steps that filled `cache` so far; a new run where it is not known."""
        last = self._runs[-1] if self._runs else None
        if last is not None and last.chain is not None and last.chain.holds(cache):
            return last.chain
        chain = Chain(cache)
        if last is not None and self._made is not None and self._made[0] is last and self._made[1]() is cache:
            chain.adopt(last.inputs, last.heard, last.calls)  # the first call made the cache itself
            last.heard, last.calls, last.chain = [], Calls(), chain
        else:
            self._add(Run({}, chain=chain))
        if self._generation is not None:
            self._generation.chain = chain
        watch.reordering(cache, partial(self._reorder, chain), self._changed)
        return chain

    def like(self) -> Recorder:
        """Another recorder of the same model, for a block of its own."""
        return Recorder(self.subject, rows=self._rows, seed=self._random.randrange(1 << 30))

    def _asked(self, runs: list[Run]) -> Iterator[Recording]:
        """The recordings of runs in which nothing was heard: the model is asked for its weights."""
        model = self.subject.model
        if not runs or not returned.can_be_asked(model):
            key = "errors.nothing_to_record" if has_attention(model) else "errors.no_attention"
            raise NothingToRecord(say(key, model=type(model).__name__))
        decodes = bool(getattr(getattr(model, "config", None), "is_encoder_decoder", False))
        for run in runs:
            whole = again.ask(self.subject, run, self.prepared, self._sequence)
            first = 0
            if run.chain is not None and run.chain.returned is not None:
                first = prompt_length(run.chain, decodes)
            yield self._keep.of(marked(whole, first, encoder_decoder=decodes))

    def _reorder(self, chain: Chain, order: Tensor) -> None:
        chain.reorder(order)
        self._shelf.reordered(self._run_of(chain).number, order)


@dataclass
class _Generation:
    """One call of `generate`: what it was given, and the steps that it took."""

    given: dict[str, Tensor]
    chain: Chain | None = None
