"""From the runs of a block to recordings: one for each call of the model, one for each generation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from regard.errors import NothingToRecord
from regard.models.loading import Subject
from regard.record import again, returned
from regard.record.assemble import Part, join, parts_of
from regard.record.choosing import LeftOut, check
from regard.record.heard import Run
from regard.record.keeping import Keep
from regard.record.origin import Origin
from regard.record.recording import Recording
from regard.record.sequences import TARGET, TEXT, Prepared
from regard.record.shelf import Shelf
from regard.record.stitch import choose, inputs_of, prompt_length, stitch
from regard.record.unseen import has_attention
from regard.words import say


def recordings_of(
    origin: Origin,
    runs: Sequence[Run],
    prepared: Prepared | None,
    sequence: int,
    shelf: Shelf,
    keep: Keep,
    read: Callable[[Run], Recording] | None = None,
) -> Iterator[Recording]:
    """The recordings of all runs; an encoder that was called by itself goes with the decoder after it.

    The runs give up what they hold, one after the other. `read` has the model read a text once more, of which
    the steps are no longer known.
    """
    before: list[Part] = []
    earlier: list[LeftOut] = []
    for run, following in zip(runs, [*runs[1:], None], strict=True):
        chain = run.chain
        if chain is None:
            if origin.encoder_decoder and run.apart and following is not None and following.chain is not None:
                before, earlier = parts_of(run.heard), run.calls.left_out
                continue
            inputs, whole, first = run.inputs, prepared, 0
            parts, left_out = parts_of(run.heard), run.calls.left_out
        else:
            chain.check_last()
            first = prompt_length(chain, origin.encoder_decoder) if chain.returned is not None else 0
            try:
                chosen = choose(chain, sequence, encoder_decoder=origin.encoder_decoder)
            except NothingToRecord:
                if chain.cached or read is None:
                    raise
                yield keep.of(marked(read(run), first, encoder_decoder=origin.encoder_decoder))
                continue
            inputs, whole = inputs_of(chain, chosen, encoder_decoder=origin.encoder_decoder), prepared
            if prepared is not None and not origin.encoder_decoder:
                whole = prepared.continued(inputs, origin.tokenizer)
            parts = [*before, *stitch(chain, chosen, shelf)]
            left_out = [*earlier, *chain.steps[0].calls.left_out]
            before, earlier = [], []
            chain.steps.clear()
        run.heard.clear()
        without = [(one.layer, one.kind) for one in left_out]
        if not parts:
            check(origin.name, [], [], left_out)
            keep.refuse(without)
        made = join(origin, parts, inputs, whole, left_out)
        made = marked(made, first, encoder_decoder=origin.encoder_decoder)
        parts.clear()  # from here on only the recording holds the tensors: sites give theirs up in turn
        yield keep.of(made, without)


def asked(
    subject: Subject, runs: Sequence[Run], prepared: Prepared | None, sequence: int, keep: Keep
) -> Iterator[Recording]:
    """The recordings of runs in which nothing was heard: the model is asked for its weights."""
    model, whole_runs = subject.model, [run for run in runs if not run.apart]
    if not whole_runs or not returned.can_be_asked(model):
        key = "errors.nothing_to_record" if has_attention(model) else "errors.no_attention"
        raise NothingToRecord(say(key, model=type(model).__name__))
    decodes = bool(getattr(getattr(model, "config", None), "is_encoder_decoder", False))
    for run in whole_runs:
        whole = again.ask(subject, run, prepared, sequence)
        first = 0
        if run.chain is not None and run.chain.returned is not None:
            first = prompt_length(run.chain, decodes)
        yield keep.of(marked(whole, first, encoder_decoder=decodes))


def marked(recording: Recording, first: int, *, encoder_decoder: bool) -> Recording:
    """The recording, with tokens from number `first` on marked as written by the model; 0 for none."""
    name = TARGET if encoder_decoder else TEXT
    if not first or name not in recording.sequences:
        return recording
    written = recording.sequences[name].written_from(first)
    return replace(recording, sequences={**recording.sequences, name: written})
