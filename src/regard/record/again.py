"""A model that is run a second time on what it was given, because its first run showed too little.

Two cases. A model with a softmax of its own shows nothing: it is asked for its weights (returned.py). Beams
that ended before the last step of a generation without a cache are no longer there: their text is read once
more. What was generated step by step is read in one pass, which shows the same where attention is causal:

    row i of one pass over y_1 … y_n   =   what the step that read y_i gave

A second run must be the first one over again. So it is refused in training with dropout, and when parameters
or inputs were changed in between; and the two outputs are compared.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import InvalidArgument, NothingToRecord, UnfaithfulRecording
from regard.models.loading import Subject
from regard.record import proof, returned
from regard.record.assemble import join
from regard.record.generation import Chain
from regard.record.heard import Run
from regard.record.origin import Origin
from regard.record.recording import Recording
from regard.record.sequences import Prepared
from regard.record.structure import Structure
from regard.words import say

_local = threading.local()
_OURS = ("output_attentions", "return_dict")  # what the second run is told otherwise


def is_private_to_another(listener: object) -> bool:
    """Whether what runs in this thread is a second run, and not for `listener`."""
    return getattr(_local, "private", False) and _local.private is not listener


@contextmanager
def private(listener: object | None) -> Iterator[None]:
    """What runs in this block is heard by `listener` alone."""
    before = getattr(_local, "private", False)
    _local.private = listener if listener is not None else object()
    try:
        yield
    finally:
        _local.private = before


def remember(run: Run, model: nn.Module, output: Any) -> None:
    """Note of a run that showed nothing how the model stood after it, and what it gave."""
    run.output = _main(output)
    run.state = _state(model, _tensors_of(run))


def ask(subject: Subject, run: Run, prepared: Prepared | None, sequence: int) -> Recording:
    """The recording of a run in which nothing was heard: by the weights that the model returns."""
    inputs = _whole(subject.model, run.chain, sequence) if run.chain is not None else run.inputs
    given = dict(inputs) if run.chain is not None else run.given
    if prepared is not None and "decoder_input_ids" not in inputs and run.chain is not None:
        prepared = prepared.continued(inputs, subject.tokenizer)
    _refuse_if_changed(subject.model, run)
    with private(None), _as_before(subject.model, run.chance):
        asked = {name: value for name, value in given.items() if name not in _OURS}
        parts, result = returned.ask(subject, asked, inputs)
    if run.chain is not None:
        decoding = [p for p in parts if p.kind == "self" and "decoder_input_ids" not in inputs]
        if decoding and len(run.chain.steps) * inputs["input_ids"].shape[1] > 1:
            raise NothingToRecord(_why(subject.model, "errors.again_not_causal"))
    _compare(subject.model, run, result, inputs)
    return join(
        Origin.of(subject, Structure.of(subject.model)),
        parts,
        inputs,
        prepared,
        notes=(say("notes.asked_again"),),
    )


def read(recorder: Any, run: Run, sequence: int) -> Recording:
    """The recording of a sequence whose steps were not kept, read in one pass by a recorder like this one."""
    subject, chain = recorder.subject, run.chain
    whole = _whole(subject.model, chain, sequence)
    inner = recorder.like()
    prepared = recorder.prepared
    if prepared is not None and "decoder_input_ids" not in whole:
        prepared = prepared.continued(whole, subject.tokenizer)
    inner.prepared = prepared
    _refuse_dropout(subject.model)
    with private(inner), _as_before(subject.model), inner:
        subject.model(**whole, use_cache=False)
    made: Recording = inner.recording
    notes = (*made.provenance.notes, say("notes.read_again"))
    return replace(made, provenance=replace(made.provenance, notes=notes))


def _whole(model: nn.Module, chain: Chain | None, sequence: int) -> dict[str, Tensor]:
    """What the model would have been given, had it read all of its steps at once."""
    steps = chain.steps if chain is not None else []
    name = "decoder_input_ids" if steps and "decoder_input_ids" in steps[-1].inputs else "input_ids"
    if chain is None or any(name not in step.inputs for step in steps):
        raise NothingToRecord(_why(model, "errors.again_steps"))
    decodes, first = name == "decoder_input_ids", steps[0].inputs
    device = first[name].device
    if chain.returned is None:
        ids, kept = _of_steps(model, chain, name), None
        lengths = torch.full((len(ids), 1), ids.shape[1])
    else:
        items = next(iter(chain.given.values()), chain.returned).shape[0]
        each = chain.returned.shape[0] // items
        if not 0 <= sequence < each:
            raise InvalidArgument(
                f"sequence must lie in [0, {each}), the sequences of each item; got {sequence}."
            )
        prompt = chain.given.get(name)
        written = 1 if prompt is None else prompt.shape[1]
        ids = chain.returned[sequence::each].to(device)
        lengths = torch.tensor([[_read(row, written, chain.ends)] for row in ids.tolist()])
        ids = ids[:, : int(lengths.max())]
        kept = chain.given.get("decoder_attention_mask" if decodes else "attention_mask")
    mask = torch.arange(ids.shape[1]) < lengths
    last = steps[-1].inputs.get("attention_mask")
    if kept is None and not decodes and last is not None and last.shape == ids.shape:
        kept = last
    if kept is not None and kept.ndim == 2 and len(kept) == len(mask):
        mask[:, : kept.shape[1]] &= kept[:, : mask.shape[1]].cpu().bool()
    whole = {name: ids} if mask.all() else {name: ids, f"{name[:-9]}attention_mask": mask.long().to(device)}
    if decodes:
        encoded = chain.given or {k: v for k, v in first.items() if not k.startswith("decoder_")}
        return {**encoded, **whole}
    if "position_ids" in first and not mask.all():
        whole["position_ids"] = (mask.long().cumsum(1) - 1).clamp(min=0).to(device)
    return whole


def _of_steps(model: nn.Module, chain: Chain, name: str) -> Tensor:
    """The tokens of all steps, one after another."""
    parts, at = [], 0
    for step in chain.steps:
        ids = step.inputs[name]
        if step.past != at or step.order is not None or ids.ndim != 2:
            raise NothingToRecord(_why(model, "errors.again_steps"))
        parts.append(ids[:, : min(step.keep, ids.shape[1])])
        at += parts[-1].shape[1]
    return torch.cat(parts, 1)


def _read(row: list[int], written: int, ends: tuple[int, ...]) -> int:
    """How many tokens of a returned sequence were read: all but the last one written."""
    stop = next((i for i in range(written, len(row)) if row[i] in ends), len(row) - 1)
    return max(1, stop)


def _refuse_dropout(model: nn.Module) -> None:
    for module in model.modules():
        if module.training and isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0:
            raise NothingToRecord(_why(model, "errors.again_dropout"))


def _refuse_if_changed(model: nn.Module, run: Run) -> None:
    _refuse_dropout(model)
    if run.state != _state(model, _tensors_of(run)):
        raise NothingToRecord(_why(model, "errors.again_changed"))


def _state(model: nn.Module, tensors: list[Tensor]) -> tuple[int, ...]:
    """Changes whenever a parameter or an input is written to."""
    held = (*model.parameters(), *model.buffers(), *tensors)
    return tuple(0 if t.is_inference() else t._version for t in held)


def _tensors_of(run: Run) -> list[Tensor]:
    """What a run read; of steps nothing, as a loop may well write on in the tensor that it reads from."""
    return [v for v in run.given.values() if isinstance(v, Tensor)] if run.chain is None else []


def _compare(model: nn.Module, run: Run, result: Any, inputs: Mapping[str, Tensor]) -> None:
    """Raise unless the second run gave what the first one gave, as far as that is known."""
    first, second = run.output, _main(result)
    if first is None or second is None:
        return
    if run.chain is not None and first.ndim == second.ndim == 3:
        padded = any(name.endswith("attention_mask") for name in inputs)
        beams = run.chain.returned is not None and any(s.order is not None for s in run.chain.steps)
        if padded or beams or len(first) != len(second):
            return
        first, second = first[:, -1], second[:, -1]
    if first.shape != second.shape or not first.numel():
        return
    error = (first.float() - second.float()).nan_to_num().abs().amax()
    tolerance = proof.tolerance_of(first.dtype) * float(first.float().nan_to_num().abs().amax())
    if float(error) > tolerance:
        raise UnfaithfulRecording(_why(model, "errors.again_differs"))


def _main(output: Any) -> Tensor | None:
    """The first field of a result that is numbers for each position: its states or logits."""
    values = output if isinstance(output, tuple | list) else getattr(output, "__dict__", {}).values()
    found = (v for v in values if isinstance(v, Tensor) and v.is_floating_point() and v.ndim >= 2)
    first = next(found, None)
    return None if first is None else first.detach()


@contextmanager
def _as_before(model: nn.Module, chance: Tensor | None = None) -> Iterator[None]:
    """Nothing that the model holds, nor what is drawn by chance after the block, is changed by it.

    Within it, the same is drawn as when the generator stood at `chance`.
    """
    training = [module for module in model.modules() if module.training]
    devices = {p.device for p in model.parameters() if p.device.type == "cuda"}
    model.eval()
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=list(devices)):
            if chance is not None:
                torch.set_rng_state(chance)
            yield
    finally:
        for module in training:
            module.training = True


def _why(model: nn.Module, key: str) -> str:
    return say("errors.not_again", model=type(model).__name__, reason=say(key))
