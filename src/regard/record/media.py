"""Images and sound, made into tensors by the model's own processor.

Any object of transformers that does so will serve: an image processor, a feature extractor, or a processor
that holds one beside a tokenizer. Pillow and numpy are recognised, not imported.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import InvalidArgument
from regard.models.loading import Subject
from regard.words import say

_WAVES = ("input_features", "input_values")  # what models of sound mainly read


@dataclass(frozen=True)
class Media:
    """Tensors by name, and what is to be said of them."""

    tensors: dict[str, Tensor]
    notes: tuple[str, ...] = ()


def is_array(value: object) -> bool:
    """Whether this is an array of numpy."""
    kind = type(value)
    return kind.__module__ == "numpy" and kind.__name__ == "ndarray"


def is_picture(value: Any) -> bool:
    """An image of Pillow, an array of bytes (height, width, channels), or several of these."""
    if isinstance(value, list | tuple) and value:
        return all(is_picture(one) for one in value)
    if type(value).__module__.startswith("PIL."):
        return hasattr(value, "convert")
    return is_array(value) and str(value.dtype) == "uint8" and value.ndim in (2, 3)


def is_sound(value: Any, main_input: str) -> bool:
    """A waveform on one axis, or several, for a model that reads sound."""
    if main_input not in _WAVES:
        return False
    if isinstance(value, list | tuple) and value:
        return all(is_sound(one, main_input) for one in value)
    return (is_array(value) or isinstance(value, Tensor)) and value.ndim == 1


def tokenizer_of(processor: Any) -> Any:
    """The tokenizer that this is or holds, or None."""
    if processor is None or hasattr(processor, "convert_ids_to_tokens"):
        return processor
    return getattr(processor, "tokenizer", None)


def processor_of(given: Any) -> Any:
    """What makes tensors of images or sound, of what `tokenizer=` was given; None for a mere tokenizer."""
    return None if given is None or hasattr(given, "convert_ids_to_tokens") else given


def subject_of(model: Subject | nn.Module, given: Any) -> Subject:
    """The model with the tokenizer or processor that was `given` beside it."""
    tokenizer, processor = tokenizer_of(given), processor_of(given)
    if isinstance(model, Subject):
        return replace(model, tokenizer=tokenizer or model.tokenizer, processor=processor or model.processor)
    if not isinstance(model, nn.Module):
        raise InvalidArgument(
            f"model must be a Subject or a torch.nn.Module; got {type(model).__name__}. "
            "regard.load gives one by its name."
        )
    source = str(getattr(getattr(model, "config", None), "_name_or_path", "") or "")
    return Subject(model, tokenizer, name=source or type(model).__name__, source=source, processor=processor)


def prepare(subject: Subject, value: Any) -> Media:
    """The tensors of an image, of a waveform, or of several."""
    return _of_pictures(subject, value) if is_picture(value) else _of_sound(subject, value)


def _of_pictures(subject: Subject, value: Any) -> Media:
    processor = _part(subject.processor, "image_processor", "pixel_values")
    if processor is None:
        raise InvalidArgument(
            f"{subject.name} has no image processor, so an image must be a tensor (batch, channels, height, "
            "width) as one makes it; or pass one as tokenizer=, as from AutoImageProcessor.from_pretrained."
        )
    several = list(value) if isinstance(value, list | tuple) else [value]
    coloured = [one.convert("RGB") if hasattr(one, "convert") else one for one in several]
    return Media(_tensors(processor(coloured, return_tensors="pt")))


def _of_sound(subject: Subject, value: Any) -> Media:
    extractor = _part(subject.processor, "feature_extractor", *_WAVES)
    several = list(value) if isinstance(value, list | tuple) else [value]
    for one in several:
        if not (is_array(one) or isinstance(one, Tensor)) or one.ndim != 1:
            raise InvalidArgument(f"sound must be a waveform on one axis, or several; got {_described(one)}.")
    if extractor is None:
        if getattr(subject.model, "main_input_name", "") == "input_values" and len(several) == 1:
            return Media({"input_values": torch.as_tensor(several[0])[None]})
        raise InvalidArgument(
            f"{subject.name} has no feature extractor, so sound must be the tensor that one makes of it; "
            "or pass one as tokenizer=, as from AutoFeatureExtractor.from_pretrained."
        )
    rate = int(extractor.sampling_rate)
    options: dict[str, Any] = {"sampling_rate": rate, "return_tensors": "pt"}
    if inspect.signature(extractor.__call__).parameters["padding"].default is False:
        options["padding"] = True
    waves = [torch.as_tensor(one).detach().cpu().float().numpy() for one in several]
    note = say("notes.sampling_rate", rate=f"{rate:,}")
    return Media(_tensors(extractor(waves, **options)), (note,))


def _part(processor: Any, name: str, *makes: str) -> Any:
    """The processor of that name that this holds, or this itself where it makes such tensors."""
    held = getattr(processor, name, None)
    if held is not None:
        return held
    return processor if set(makes) & set(getattr(processor, "model_input_names", ())) else None


def _tensors(encoded: Any) -> dict[str, Tensor]:
    return {str(name): value for name, value in encoded.items() if isinstance(value, Tensor)}


def _described(value: Any) -> str:
    shape = getattr(value, "shape", None)
    return type(value).__name__ if shape is None else str(tuple(shape))
