"""What the decoder beside an encoder reads: the target text shifted right, or its first token alone.

    labels   y_1 … y_n      decoder reads   start, y_1 … y_{n−1}

so that row i is what the decoder looked at when it was to write y_{i+1}, as in training. The model's own
rule does the shifting where it has one.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from regard.errors import InvalidArgument
from regard.models.loading import Subject
from regard.record.encode import device_of
from regard.record.given import Given
from regard.words import say

if TYPE_CHECKING:
    from jaxtyping import Int

_IGNORED = -100  # what transformers calls no label


def decodes(model: nn.Module) -> bool:
    """Whether the model is an encoder with a decoder beside it."""
    if not getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        return False
    return "decoder_input_ids" in inspect.signature(model.forward).parameters


def with_target(subject: Subject, given: Given, target: str | Sequence[str]) -> Given:
    """With the tokens of the target as what the decoder reads."""
    if not decodes(subject.model):
        raise InvalidArgument(
            f"target is for an encoder with a decoder; {type(subject.model).__name__} is none. "
            "Put both texts into one, or use pair."
        )
    if subject.tokenizer is None:
        raise InvalidArgument(f"{subject.name} has no tokenizer for the target; pass tokenizer=.")
    if "decoder_input_ids" in given.named:
        raise InvalidArgument("give either target or inputs['decoder_input_ids'], not both.")
    texts = [target] if isinstance(target, str) else list(target)
    items = _items(given)
    if len(texts) != items or not all(isinstance(one, str) for one in texts):
        raise InvalidArgument(f"target must be a text for each item, {items} in all; got {target!r}.")
    if any(not one.strip() for one in texts):
        raise InvalidArgument(say("errors.empty_text"))
    rows = subject.tokenizer(text_target=texts, verbose=False)["input_ids"]
    longest = max(map(len, rows))
    labels = torch.full((items, longest), _IGNORED, dtype=torch.long, device=device_of(subject.model))
    for item, ids in enumerate(rows):
        labels[item, : len(ids)] = torch.tensor(ids, dtype=torch.long)
    ids = _shifted(subject.model, labels)
    named = {**given.named, "decoder_input_ids": ids}
    missing = longest - ids.shape[1]  # a start that the tokenizer had put in already is not put in twice
    kept = torch.arange(ids.shape[1]) < torch.tensor([[len(row) - missing] for row in rows])
    takes_mask = "decoder_attention_mask" in inspect.signature(subject.model.forward).parameters
    if takes_mask and not bool(kept.all()):
        named["decoder_attention_mask"] = kept.to(ids)
    return replace(given, named=named)


def with_start(subject: Subject, given: Given) -> Given | None:
    """With the token that a decoder begins with as all that it reads; None where that is not what lacks."""
    model = subject.model
    if not decodes(model) or "decoder_input_ids" in given.named:
        return None
    start = _start(model)
    if start is None:
        return None
    ids = torch.tensor([[start]] * _items(given), device=device_of(model))
    begun = replace(given, named={**given.named, "decoder_input_ids": ids})
    return begun.noting(say("notes.decoder_start", id=start))


def _items(given: Given) -> int:
    return int(next(iter((*given.positional, *given.named.values()))).shape[0])


def _start(model: nn.Module) -> int | None:
    """The token that the model's decoder begins with."""
    config: Any = model.config
    places = (getattr(model, "generation_config", None), config, getattr(config, "decoder", None))
    for name in ("decoder_start_token_id", "bos_token_id", "pad_token_id"):
        for place in places:
            if isinstance(found := getattr(place, name, None), int):
                return found
    return None


def _without_start(model: nn.Module) -> InvalidArgument:
    return InvalidArgument(
        f"{type(model).__name__} does not say what its decoder begins with; "
        "set model.config.decoder_start_token_id."
    )


def _shifted(model: nn.Module, labels: Int[Tensor, "b n"]) -> Int[Tensor, "b n"]:
    """What the decoder reads to write `labels`."""
    start = _start(model)
    if start is not None and bool(labels[:, 0].eq(start).all()):
        return labels[:, :-1].masked_fill(labels[:, :-1] == _IGNORED, _padding(model))
    for name in ("prepare_decoder_input_ids_from_labels", "_shift_right"):
        if callable(shift := getattr(model, name, None)):
            try:
                shifted: Tensor = shift(labels)
            except (AttributeError, ValueError) as error:
                raise _without_start(model) from error
            return shifted
    if start is None:
        raise _without_start(model)
    begun = torch.cat([labels.new_full((len(labels), 1), start), labels[:, :-1]], 1)
    return begun.masked_fill(begun == _IGNORED, _padding(model))


def _padding(model: nn.Module) -> int:
    found = getattr(model.config, "pad_token_id", None)
    return found if isinstance(found, int) else 0
