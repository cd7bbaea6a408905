"""What ran in a block: the calls of a model, and the steps of a generation that fill one cache."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from regard.record import again, returned, watch
from regard.record.choosing import Calls, Choice
from regard.record.generation import Chain, cache_in, cached_tokens
from regard.record.heard import Run
from regard.record.progress import Count
from regard.record.sequences import Prepared
from regard.record.shelf import Shelf


@dataclass
class _Generation:
    """One call of `generate`: what it was given, and the steps that it took."""

    given: dict[str, Tensor]
    chain: Chain | None = None


@dataclass(eq=False)
class Course:
    """The runs of one block, in order, while it lasts. A `watch.RunListener`."""

    model: nn.Module
    watches: Callable[[nn.Module], bool]
    shelf: Shelf
    choice: Choice
    count: Count | None
    prepared: Prepared | None
    changed: ExitStack  # what is undone after the block

    def __post_init__(self) -> None:
        self.runs: list[Run] = []
        self._running, self._by = False, 0  # whether a call of the model runs, and its thread
        self.at_once = False  # whether calls ran in several threads at once
        self._generation: _Generation | None = None
        self._made: tuple[Run, weakref.ref[Any]] | None = None  # a run, and the cache that it made

    def present(self) -> tuple[Run, Chain | None]:
        """The run that a call belongs to (the model's, or one of its parts, called by itself); its steps."""
        if not self.runs or not (self._running or self.runs[-1].apart):
            self._add(Run({}, apart=True))
        run = self.runs[-1]
        return run, run.chain if self._running else None

    def end(self) -> list[Run]:
        """The block is over, and nothing is watched any more; all of its runs."""
        runs, self.runs = self.runs, []
        self.watches = _watches_nothing  # no way back to the recorder, which is free when nobody holds it
        return runs

    def begin_run(self, given: dict[str, Any]) -> None:
        """A call of the model begins. Part of `watch.RunListener`."""
        here = threading.get_ident()
        if self._running and self._by != here:
            self.at_once = True
        self._running, self._by = True, here
        if self.count is not None:
            self.count.begin_run()
        self.choice.forget()
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
            silent = not self.runs or self.runs[0].empty  # it may have to be run again, just so
            chance = torch.get_rng_state() if silent else None
            self._add(Run(tensors, given=given, chance=chance))

    def _add(self, run: Run) -> Run:
        run.number = len(self.runs)
        self.runs.append(run)
        self.shelf.began(run, self.prepared)
        return run

    def _step(self, chain: Chain, past: int, tensors: dict[str, Tensor]) -> None:
        chain.begin(past, tensors)
        self.shelf.stepped(self._run_of(chain).number, past, tensors)

    def _run_of(self, chain: Chain) -> Run:
        return next(run for run in self.runs if run.chain is chain)

    def end_run(self, output: Any) -> None:
        """It ended. Part of `watch.RunListener`."""
        self._running = False
        if self.count is not None and output is not None:
            self.count.end_run()
        self.choice.forget()
        cache = cache_in(getattr(output, "__dict__", {}))
        run = self.runs[-1] if self.runs else None
        if run is not None:
            if not run.empty:
                run.given, run.chance = {}, None
            elif returned.can_be_asked(self.model):
                again.remember(run, self.model, output)
        if run is not None and run.chain is None and cached_tokens(cache):
            self._made = (run, weakref.ref(cache))

    def begin_generation(self, given: dict[str, Tensor], most: int) -> None:
        """`generate` begins. Part of `watch.RunListener`."""
        if self.count is not None:
            self.count.begin_generation(most)
        self._generation = _Generation(given)

    def end_generation(self, returned: Any, ends: tuple[int, ...]) -> None:
        """It ended. Part of `watch.RunListener`."""
        if self.count is not None:
            self.count.end_generation(well=returned is not None)
        generation, self._generation = self._generation, None
        if generation is not None and generation.chain is not None:
            sequences = getattr(returned, "sequences", returned)
            generation.chain.given = generation.given
            generation.chain.returned = sequences if isinstance(sequences, Tensor) else None
            generation.chain.ends = ends

    def _chain_of(self, cache: Any) -> Chain:
        """The steps that filled `cache` so far; a new run where it is not known."""
        last = self.runs[-1] if self.runs else None
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
        watch.reordering(cache, partial(self._reorder, chain), self.changed)
        return chain

    def _reorder(self, chain: Chain, order: Tensor) -> None:
        chain.reorder(order)
        self.shelf.reordered(self._run_of(chain).number, order)


def _watches_nothing(module: nn.Module) -> bool:
    return False
