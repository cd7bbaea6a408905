"""`Recorder`: a context in which a model's attentions are recorded while its own kernels compute them."""

from __future__ import annotations

import inspect
import threading
from random import Random
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor, nn

from regard.errors import InvalidArgument, NothingToRecord
from regard.models.loading import Subject
from regard.record import intercept, interface, proof
from regard.record.assemble import Heard, Run, assemble
from regard.record.call import Call, NotUnderstood, understand
from regard.record.layers import kind_of
from regard.record.recording import Recording
from regard.record.sequences import Prepared
from regard.record.unseen import has_attention
from regard.words import say


class Recorder:
    """Record whatever runs through a model inside the block.

    Only references to queries, keys and masks are kept; the model computes as it would without. What
    was changed for the time of the block is restored after it, also when the model raises. Recorders
    may be nested, and live in several threads at once: each hears the calls of its own thread, of its
    own model.

    Args:
        model: a `Subject` or a module.
        tokenizer: to show tokens as text, when `model` is a bare module.
        rows: query positions of each site whose output is recomputed and compared (the proof); 0 for none.
        seed: which random ones.
        any_thread: hear calls from every thread, as when `generate` runs in a thread of its own.

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
    ) -> None:
        self.subject = model if isinstance(model, Subject) else _as_subject(model, tokenizer)
        if rows < 0:
            raise InvalidArgument(f"rows must be at least 0; got {rows}.")
        self._rows, self._random, self._any_thread = rows, Random(seed), any_thread
        self._names = _names_of(self.subject.model)
        self._thread = 0
        self._runs: list[Run] = []
        self._recordings: tuple[Recording, ...] | None = None
        self._chosen: dict[tuple[int, torch.device], Tensor] = {}
        self._not_understood: str | None = None
        self._hook: torch.utils.hooks.RemovableHandle | None = None
        self.prepared: Prepared | None = None  # what `record` knows of the tokens

    @property
    def recordings(self) -> tuple[Recording, ...]:
        """One recording for each call of the model inside the block."""
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
        if self._hook is not None or self._recordings is not None:
            raise InvalidArgument("a Recorder serves one block; make another one for the next.")
        self._thread = threading.get_ident()
        self._hook = self.subject.model.register_forward_pre_hook(self._begin_run, with_kwargs=True)
        interface.listen(self)
        intercept.listen(self, self._modules())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        intercept.leave(self)
        interface.leave(self)
        if self._hook is not None:
            self._hook.remove()
        self._chosen.clear()
        if kind is not None:
            self._runs.clear()
            return
        runs = [run for run in self._runs if run.heard]
        self._runs = []
        if self._not_understood is not None:
            raise NothingToRecord(
                say("errors.not_understood", model=self.subject.name, reason=self._not_understood)
            )
        if not runs:
            key = "errors.nothing_to_record" if has_attention(self.subject.model) else "errors.no_attention"
            raise NothingToRecord(say(key, model=type(self.subject.model).__name__))
        self._recordings = tuple(assemble(self.subject, run, self.prepared) for run in runs)

    def watches(self, module: nn.Module) -> bool:
        """Whether calls of this module are recorded. Part of `interface.Listener`."""
        if id(module) not in self._names:
            return False
        # Gradient checkpointing runs the forward again during backward: that is no new look.
        if torch._C._current_graph_task_id() != -1:
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
        name = self._names[id(module)]
        evidence = self._compare(call, output)
        if not self._runs:
            self._runs.append(Run({}))
        if not kind:
            kind = kind_of(module, name, call.causal)
            if door != "interface" and kind == "self":
                kind = ""  # such modules do not say whether they are causal: their masks will
        self._runs[-1].heard.append(Heard.of(call, name, kind, evidence, door))

    def refuse(self, module: nn.Module, reason: str) -> None:
        """Remember a call that cannot be read. Part of `CallListener`."""
        self._not_understood = f"{self._names[id(module)]} ({reason})"

    def _modules(self) -> list[nn.Module]:
        return list(self.subject.model.modules())

    def _compare(self, call: Any, output: Tensor) -> proof.Evidence | None:
        if not self._rows or call.dropout > 0:
            return None
        queries = call.query.shape[2]
        place = (queries, call.query.device)
        if place not in self._chosen:
            self._chosen[place] = proof.choose_rows(queries, self._rows, self._random).to(call.query.device)
        with torch.no_grad():
            return proof.gather(call, output, self._chosen[place])

    def _begin_run(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not self.watches(module):
            return
        given = dict(kwargs)
        if args:
            given |= zip(inspect.signature(module.forward).parameters, args, strict=False)
        self._runs.append(Run({name: value for name, value in given.items() if isinstance(value, Tensor)}))


def _names_of(model: nn.Module) -> dict[int, str]:
    """Qualified names by identity: what named_modules says, in a quarter of its time."""
    names: dict[int, str] = {}
    ahead = [("", model)]
    while ahead:
        name, module = ahead.pop()
        if id(module) in names:
            continue
        names[id(module)] = name
        prefix = f"{name}." if name else ""
        children = [(prefix + child, part) for child, part in module._modules.items() if part is not None]
        ahead.extend(reversed(children))
    return names


def _as_subject(model: nn.Module, tokenizer: Any) -> Subject:
    if not isinstance(model, nn.Module):
        raise InvalidArgument(f"model must be a Subject or a torch.nn.Module; got {type(model).__name__}.")
    source = str(getattr(getattr(model, "config", None), "_name_or_path", "") or "")
    return Subject(model, tokenizer, name=source or type(model).__name__, source=source)
