"""`regard.record`: run a model once on a text and keep what its attentions computed with."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from typing import Any, Literal

import torch
from torch import nn

from regard.errors import InvalidArgument, RegardError
from regard.models.loading import Subject
from regard.record import proof
from regard.record.choosing import Unclear
from regard.record.given import Given, Way, take
from regard.record.keeping import Form
from regard.record.memory import explaining
from regard.record.progress import Progress
from regard.record.recorder import Recorder
from regard.record.recording import Recording
from regard.record.target import with_start, with_target
from regard.words import say


def record(
    model: Subject | nn.Module,
    inputs: Any,
    pair: str | Sequence[str] | None = None,
    *,
    target: str | Sequence[str] | None = None,
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
    offload: bool = False,
    path: str | PathLike[str] | None = None,
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
        inputs: a text or several (one batch); an image of Pillow or numpy; a waveform; or what the model
            takes: a tensor, a tuple of tensors, or a dict of tensors by name, in which "text", "image" and
            "audio" may stand for what is to become tensors.
        pair: the second text of a sentence pair, or one for each text.
        target: what the decoder beside an encoder reads, shifted right; without it, the token that it begins
            with.
        tokenizer: of the model, when `model` is a bare module; or its processor, for images and sound.
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
        offload: copy queries and keys to main memory while the model runs; else they stay on its device.
        path: write them to this file while the model runs, so that a recording may be larger than memory;
            killed in the middle, it leaves path.partial, of which `regard.open` reads what was complete.
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
    shelf: dict[str, Any] = {"offload": offload, "path": path, "progress": progress}
    recorder = Recorder(model, tokenizer=tokenizer, rows=rows, seed=seed, **choice, **shelf)
    subject = recorder.subject
    options = _generation(subject, generate)
    side = padding or ("right" if options is None else "left")
    way = Way(truncate=truncate, padding=side, chat=chat, answer=options is not None)
    given = take(subject, inputs, pair, way)
    if target is not None:
        if options is not None:
            raise InvalidArgument("target is what the decoder reads; with generate it writes that itself.")
        given = with_target(subject, given, target)
    early = True
    while True:
        try:
            return _run(recorder, given, options)
        except Unclear:
            if not early:
                raise
            early = False
        except (TypeError, ValueError) as error:  # T5 and Whisper do not begin by themselves
            begun = None if isinstance(error, RegardError) or options else with_start(subject, given)
            if begun is None:
                raise
            given = begun
        recorder = Recorder(subject, rows=rows, seed=seed, **choice, **shelf)
        recorder.chooses_early = early


def _run(recorder: Recorder, given: Given, options: dict[str, Any] | None) -> Recording:
    """Run the recorder's model once: a plain call, or its `generate` with these options."""
    model: Any = recorder.subject.model
    recorder.prepared = given.prepared
    with explaining(), torch.no_grad(), _evaluating(model), recorder:
        if options is None:
            model(*given.positional, **given.named)
        else:
            model.generate(*given.positional, **given.named, **options)
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
