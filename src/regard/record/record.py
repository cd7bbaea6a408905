"""`regard.record`: run a model once on a text and keep what its attentions computed with."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, TypeGuard

import torch
from torch import Tensor, nn

from regard.errors import InvalidArgument, NothingToRecord, TooLong
from regard.models.loading import Subject
from regard.record import proof, returned
from regard.record.choosing import Unclear
from regard.record.encode import as_messages, device_of, encode, limit_of
from regard.record.keeping import Form, Keep
from regard.record.progress import Progress
from regard.record.recorder import Recorder
from regard.record.recording import Recording
from regard.words import say


def record(
    model: Subject | nn.Module,
    inputs: str | Sequence[str] | Mapping[str, Tensor] | Tensor | Sequence[Tensor],
    pair: str | Sequence[str] | None = None,
    *,
    tokenizer: Any = None,
    truncate: bool = False,
    padding: Literal["left", "right"] | None = None,
    generate: int | Mapping[str, Any] | None = None,
    chat: bool = False,
    layers: Collection[int] | None = None,
    heads: Collection[int] | None = None,
    kinds: Collection[str] | None = None,
    keep: Form = "qk",
    k: int | None = None,
    dtype: torch.dtype | None = None,
    rows: int = proof.ROWS,
    seed: int = 0,
    progress: Progress | None = None,
) -> Recording:
    """Run a model once and record all its attentions.

    A model in which no attention can be watched (a softmax of its own) is run again and asked for its
    weights.

    The model runs in evaluation mode, without gradients, with its own kernels; how it was set is restored.

    Args:
        model: a `Subject` from `regard.load`, or a module with its `tokenizer`.
        inputs: a text, several (one batch), or what the model takes: a tensor, a tuple of tensors, or a dict
            of tensors by name.
        pair: the second text of a sentence pair, or one for each text.
        truncate: cut what is longer than the model takes, instead of raising `TooLong`.
        padding: the side on which shorter texts of a batch are filled up; "right", or "left" to generate.
        generate: how many tokens the model may write after the text, each the likeliest; or the options of
            its `generate`. Every token that it reads is a row, so the last one written is none.
        chat: put the text to the model as a message, in its chat template.
        layers, heads, kinds: which attentions, and which of their heads, are kept; all by default. What is
        not wanted takes no memory while the model runs, where the names of its modules say the layer; if
        they turn out to say something else, it runs once more.
        keep: "qk", queries and keys, from which every weight follows; "weights", n · n numbers a head; or
        "top_k", the `k` largest weights of each row.
        k: how many these are; 32 by default.
        dtype: number type of what is kept, such as torch.float16; the recording says what it costs.
        rows: query positions of each site whose output is recomputed and compared (the proof); 0 for none.
        seed: which random ones.
        progress: called with ("recording", attentions heard, attentions there are) while the model runs, and
        with ("generating", tokens written, tokens asked for); what it raises ends the run.

    Raises:
        InvalidArgument: empty text, a pair of another length, …
        TooLong: more tokens than the model takes.
        UnfaithfulRecording: a site whose recomputed output is not the model's.
        NothingToRecord: no attention of the model could be observed.

    >>> recording = regard.record(regard.load("minilm"), "The cat sleeps.")  # doctest: +SKIP
    >>> recording.weights(layer=2, head=5).shape                            # doctest: +SKIP
    torch.Size([6, 6])
    """
    choice: dict[str, Any] = {
        "layers": layers,
        "heads": heads,
        "kinds": kinds,
        "keep": keep,
        "k": k,
        "dtype": dtype,
    }
    recorder = Recorder(model, tokenizer=tokenizer, rows=rows, seed=seed, progress=progress, **choice)
    subject = recorder.subject
    options = _generation(subject, generate)
    tensors: dict[str, Tensor] = {}
    positional: tuple[Tensor, ...] = ()
    if isinstance(inputs, Mapping):
        tensors = _checked_tensors(subject.model, inputs, pair)
    elif _are_tensors(inputs):
        positional = _moved(subject.model, inputs, pair)
    elif subject.tokenizer is None:
        raise InvalidArgument(
            f"{subject.name} has no tokenizer, so its input must be a tensor, or a tuple or dict of tensors; "
            "or pass tokenizer=."
        )
    else:
        text: Any = inputs  # checked there
        if chat:
            text = as_messages(subject.tokenizer, subject.name, text, answer=options is not None)
        side = padding or ("right" if options is None else "left")
        encoded = encode(
            subject.model, subject.tokenizer, text, pair, truncate=truncate, padding=side, template=chat
        )
        tensors = encoded.inputs
        recorder.prepared = encoded.prepared
    try:
        return _run(recorder, positional, tensors, options)
    except Unclear:
        again = Recorder(subject, rows=rows, seed=seed, progress=progress, **choice)
        again.prepared, again.chooses_early = recorder.prepared, False
        return _run(again, positional, tensors, options)
    except NothingToRecord:
        if options is not None or recorder.heard_anything or not returned.can_be_asked(subject.model):
            raise
        with torch.no_grad(), _evaluating(subject.model):
            whole = returned.ask(subject, positional, tensors, recorder.prepared)
        return Keep(keep, layers, heads, kinds, k, dtype).of(whole)


def _run(
    recorder: Recorder,
    positional: tuple[Tensor, ...],
    named: dict[str, Tensor],
    options: dict[str, Any] | None,
) -> Recording:
    """Run the recorder's model once: a plain call, or its `generate` with these options."""
    model: Any = recorder.subject.model
    with torch.no_grad(), _evaluating(model), recorder:
        if options is None:
            model(*positional, **named)
        else:
            model.generate(*positional, **named, **options)
    return recorder.recording


def _generation(subject: Subject, generate: int | Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The options of the model's `generate`; None for a plain call."""
    if generate is None:
        return None
    if not callable(getattr(subject.model, "generate", None)):
        raise InvalidArgument(say("errors.cannot_generate", name=subject.name))
    if isinstance(generate, Mapping):
        return dict(generate)
    if isinstance(generate, bool) or not isinstance(generate, int) or generate < 1:
        raise InvalidArgument(f"generate must be a number of tokens, at least 1; got {generate!r}.")
    return {"max_new_tokens": generate, "do_sample": False}


def _checked_tensors(model: nn.Module, inputs: Mapping[str, Tensor], pair: object) -> dict[str, Tensor]:
    if pair is not None:
        raise InvalidArgument("pair goes with text; tensors already hold both texts.")
    for name, value in inputs.items():
        if not isinstance(value, Tensor):
            raise InvalidArgument(f"inputs[{name!r}] must be a tensor; got {type(value).__name__}.")
    ids, limit = inputs.get("input_ids"), limit_of(model)
    if ids is not None and limit is not None and ids.shape[-1] > limit:
        raise TooLong(
            say("errors.too_long", tokens=ids.shape[-1], limit=limit), tokens=ids.shape[-1], limit=limit
        )
    device = device_of(model)
    return {name: value.to(device) for name, value in inputs.items()}


def _are_tensors(inputs: object) -> TypeGuard[Tensor | Sequence[Tensor]]:
    """Whether the model is given tensors by position."""
    if isinstance(inputs, Tensor):
        return True
    return isinstance(inputs, tuple | list) and bool(inputs) and isinstance(inputs[0], Tensor)


def _moved(model: nn.Module, inputs: Tensor | Sequence[Tensor], pair: object) -> tuple[Tensor, ...]:
    if pair is not None:
        raise InvalidArgument("pair goes with text; tensors already hold both texts.")
    several = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    for i, value in enumerate(several):
        if not isinstance(value, Tensor):
            raise InvalidArgument(f"inputs[{i}] must be a tensor; got {type(value).__name__}.")
    device = device_of(model)
    return tuple(value.to(device) for value in several)


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode for the time of the block; each module's own mode is restored."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
