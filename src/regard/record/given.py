"""From what a person hands to `record` to what the model's forward takes: texts, images, sound, tensors.

Whatever is not a tensor yet becomes one by the model's own tokenizer or processor. A missing axis of the
batch is put in front. Nothing else is guessed: what does not fit is refused in one sentence.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from regard.errors import InvalidArgument, TooLong
from regard.models.loading import Subject
from regard.record import media
from regard.record.encode import as_messages, device_of, encode, limit_of
from regard.record.sequences import Prepared
from regard.words import say

_AXES = {"input_ids": 2, "pixel_values": 4, "input_features": 3, "input_values": 2}  # with that of the batch
_SPOKEN_OF = ("text", "image", "images", "audio")  # keys of a dict that hold no tensors


@dataclass(frozen=True)
class Given:
    """The arguments of one call of a model, and what is known of their tokens."""

    positional: tuple[Tensor, ...] = ()
    named: dict[str, Tensor] = field(default_factory=dict)
    prepared: Prepared | None = None

    def noting(self, *notes: str) -> Given:
        """With sentences that the recording is to say."""
        known = self.prepared or Prepared(None)
        return replace(self, prepared=replace(known, notes=(*known.notes, *notes)))


@dataclass(frozen=True)
class Way:
    """How text becomes tokens."""

    truncate: bool
    padding: Literal["left", "right"]
    chat: bool
    answer: bool  # the model is next to speak


def take(subject: Subject, inputs: Any, pair: Any, way: Way) -> Given:
    """What `subject` is called with, given `inputs` as a person wrote them."""
    if isinstance(inputs, Mapping):
        given = _from_mapping(subject, inputs, pair, way)
    elif media.is_picture(inputs) or media.is_sound(inputs, main_input(subject.model)):
        _without_pair(pair)
        given = _from_media(subject, inputs)
    elif media.is_array(inputs) or _are_tensors(inputs):
        _without_pair(pair)
        given = Given(_positional(subject.model, inputs))
    elif subject.tokenizer is None:
        raise InvalidArgument(
            f"{subject.name} has no tokenizer, so its input must be a tensor, or a tuple or dict of tensors; "
            "or pass tokenizer=."
        )
    else:
        given = _from_text(subject, inputs, pair, way)
    device = device_of(subject.model)
    return replace(
        given,
        positional=tuple(value.to(device) for value in given.positional),
        named={name: value.to(device) for name, value in given.named.items()},
    )


def main_input(model: nn.Module) -> str:
    """The name of what the model mainly reads; "" for a module that does not say."""
    return str(getattr(model, "main_input_name", "")) if hasattr(model, "config") else ""


def _from_text(subject: Subject, text: Any, pair: Any, way: Way) -> Given:
    if way.chat:
        text = as_messages(subject.tokenizer, subject.name, text, answer=way.answer)
    encoded = encode(
        subject.model,
        subject.tokenizer,
        text,
        pair,
        truncate=way.truncate,
        padding=way.padding,
        template=way.chat,
    )
    return Given(named=encoded.inputs, prepared=encoded.prepared)


def _from_media(subject: Subject, inputs: Any) -> Given:
    prepared = media.prepare(subject, inputs)
    known = inspect.signature(subject.model.forward).parameters
    given = Given(named={name: value for name, value in prepared.tensors.items() if name in known})
    return given.noting(*prepared.notes) if prepared.notes else given


def _from_mapping(subject: Subject, inputs: Mapping[str, Any], pair: Any, way: Way) -> Given:
    """Tensors by name, and beside them "text", "image" and "audio" as a person has them."""
    given = Given()
    tensors = {}
    for name, value in inputs.items():
        if isinstance(value, Tensor):
            tensors[name] = value
        elif name == "text" and subject.tokenizer is not None:
            given = _from_text(subject, value, pair, way)
            pair = None
        elif name in _SPOKEN_OF and name != "text":
            more = _from_media(subject, value)
            notes = more.prepared.notes if more.prepared else ()
            given = replace(given, named={**given.named, **more.named})
            given = given.noting(*notes) if notes else given
        else:
            raise InvalidArgument(f"inputs[{name!r}] must be a tensor; got {type(value).__name__}.")
    _without_pair(pair)
    ids, limit = tensors.get("input_ids"), limit_of(subject.model)
    if ids is not None and limit is not None and ids.shape[-1] > limit:
        raise TooLong(
            say("errors.too_long", tokens=ids.shape[-1], limit=limit), tokens=ids.shape[-1], limit=limit
        )
    return replace(given, named={**given.named, **tensors})


def _positional(model: nn.Module, inputs: Any) -> tuple[Tensor, ...]:
    several = tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)
    tensors = []
    for i, value in enumerate(several):
        if media.is_array(value):
            value = torch.from_numpy(value)
        if not isinstance(value, Tensor):
            raise InvalidArgument(f"inputs[{i}] must be a tensor; got {type(value).__name__}.")
        tensors.append(value)
    if len(tensors) == 1:
        tensors = [_as_batch(model, tensors[0])]
    return tuple(tensors)


def _as_batch(model: nn.Module, tensor: Tensor) -> Tensor:
    """With an axis of the batch, where a model of transformers was given one item without."""
    name = main_input(model)
    wanted = _AXES.get(name)
    if wanted is None:
        return tensor
    if name == "input_ids" and tensor.is_floating_point():
        raise InvalidArgument(
            f"{type(model).__name__} reads tokens: give text or whole numbers; got {tensor.dtype}."
        )
    if tensor.ndim == wanted - 1:
        tensor = tensor[None]
    channels = getattr(getattr(model, "config", None), "num_channels", None)
    image = name == "pixel_values" and isinstance(channels, int)
    if image and (tensor.ndim == 4 and tensor.shape[1] != channels):
        raise InvalidArgument(
            f"an image must be a tensor (batch, {channels}, height, width); got {tuple(tensor.shape)}. "
            "Move the channels to the second axis, as with image.permute(2, 0, 1)."
        )
    if name != "input_ids" and not tensor.is_floating_point():
        raise InvalidArgument(
            f"{name} must be floating-point numbers, as the model's processor makes them; got {tensor.dtype}."
        )
    return tensor


def _are_tensors(inputs: object) -> bool:
    """Whether the model is given tensors by position."""
    if isinstance(inputs, Tensor):
        return True
    if not isinstance(inputs, tuple | list) or not inputs:
        return False
    return isinstance(inputs[0], Tensor) or media.is_array(inputs[0])


def _without_pair(pair: str | Sequence[str] | None) -> None:
    if pair is not None:
        raise InvalidArgument("pair goes with text; tensors already hold both texts.")
