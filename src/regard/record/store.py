"""A recording in one file: safetensors with a JSON header, opened by memory map, written beside and renamed.

    length · {"__metadata__": {"format": "regard.recording", "version": "1", "header": …}, tensors …} · bytes

Any reader of safetensors can read the tensors. Nothing in the file is ever executed. Tensors are not
loaded when the file is opened: the pages that a rectangle of weights touches are read when it is looked
at.
"""

from __future__ import annotations

import json
import os
import secrets
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from regard.errors import DamagedFile, InvalidArgument, OutputError, RecordingError, RegardError
from regard.record.header import FORMAT, VERSION, from_header, to_header, version_of
from regard.record.recording import Recording
from regard.words import say

_DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
_ALIGNMENT = 64


def save(recording: Recording, path: str | PathLike[str]) -> None:
    """Write `recording` to `path`: the whole file or none, whatever happens on the way.

    Memory: one tensor at a time.
    """
    header, tensors = to_header(recording)
    target = _target(path)
    beside = target.with_name(f".{target.name}.{os.getpid()}-{secrets.token_hex(4)}.partial")
    try:
        with beside.open("xb") as out:
            order = _write_header(out, header, tensors)
            for name in order:
                whole = tensors[name].detach().cpu().contiguous().reshape(-1)
                out.write(whole.view(torch.uint8).numpy().data)
            out.flush()
            os.fsync(out.fileno())
        os.replace(beside, target)
        _sync_folder(target.parent)
    except OSError as error:
        raise _refused(path, error) from error
    finally:
        with suppress(OSError):
            beside.unlink()


def open(path: str | PathLike[str]) -> Recording:
    """The recording in a file; its tensors are read when they are looked at.

    Raises:
        DamagedFile: no recording, a damaged or truncated one, or one written by a newer version.
    """
    shown = str(path)
    if not Path(path).is_file():
        raise InvalidArgument(say("errors.no_such_file", path=shown))
    try:
        with safe_open(os.fspath(path), framework="pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT:
                raise DamagedFile(say("errors.damaged_foreign", path=shown))
            version = metadata.get("version", "")
            if version.isdigit() and int(version) > VERSION:
                raise DamagedFile(say("errors.damaged_newer", path=shown, found=version, known=VERSION))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (no mapping)
        return from_header(json.loads(metadata["header"]), tensors)
    except DamagedFile:
        raise
    except SafetensorError as error:
        key = "errors.damaged_file" if _claims_to_be_ours(Path(path)) else "errors.damaged_foreign"
        raise DamagedFile(say(key, path=shown, reason=str(error))) from error
    except OSError as error:
        raise RecordingError(
            say("errors.unreadable", path=shown, reason=error.strerror or str(error))
        ) from error
    except (RegardError, ValueError, TypeError, KeyError, IndexError, AttributeError, RuntimeError) as error:
        reason = " ".join(f"{type(error).__name__} {error}".split())[:200]
        raise DamagedFile(say("errors.damaged_file", path=shown, reason=reason)) from error


def _target(path: str | PathLike[str]) -> Path:
    """The file that `path` means, links followed."""
    try:
        return Path(os.path.realpath(path))
    except ValueError as error:  # a NUL in the name
        raise _refused(path, error) from error


def _refused(path: str | PathLike[str], error: Exception) -> OutputError:
    reason = (error.strerror if isinstance(error, OSError) else str(error)) or type(error).__name__
    return OutputError(say("errors.cannot_write", path=str(path), reason=reason))


def _write_header(out: Any, header: dict[str, Any], tensors: dict[str, Tensor]) -> list[str]:
    """Write the header; returns the order of the tensors: wide numbers first, so that all are aligned."""
    order = sorted(tensors, key=lambda name: -tensors[name].element_size())
    metadata = {
        "format": FORMAT,
        "version": str(version_of(header)),
        "header": json.dumps(header, allow_nan=False),
    }
    entries: dict[str, Any] = {"__metadata__": metadata}
    start = 0
    for name in order:
        tensor = tensors[name]
        stop = start + tensor.numel() * tensor.element_size()
        entries[name] = {
            "dtype": _DTYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [start, stop],
        }
        start = stop
    encoded = json.dumps(entries).encode()
    encoded += b" " * (-(8 + len(encoded)) % _ALIGNMENT)
    out.write(len(encoded).to_bytes(8, "little"))
    out.write(encoded)
    return order


def _claims_to_be_ours(path: Path) -> bool:
    """Whether a file that cannot be read starts as a recording does."""
    try:
        with path.open("rb") as stream:
            return FORMAT.encode() in stream.read(256)
    except OSError:
        return False


def _sync_folder(folder: Path) -> None:
    """Make the renaming last through a power cut, where the system allows it."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
