"""A recording in one file: safetensors with a JSON header, opened by memory map, written beside and renamed.

    length · {"__metadata__": {"format": "regard.recording", "version": "1", "header": …}, tensors …} · bytes

Any reader of safetensors can read the tensors. Nothing in the file is ever executed. Tensors are not
loaded when the file is opened: the pages that a rectangle of weights touches are read when it is looked
at.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from regard.errors import DamagedFile, InvalidArgument, OutputError, RecordingError, RegardError
from regard.record.dtypes import DTYPES, bytes_of
from regard.record.header import FORMAT, VERSION, from_header, to_header, version_of
from regard.record.journal import PARTIAL, Laid, padding
from regard.record.recording import Recording
from regard.words import say
from regard.words.system import reason_of

# What reading raises where a file does not hold what it should.
_MALFORMED = (RegardError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RuntimeError)


def save(recording: Recording, path: str | PathLike[str]) -> None:
    """Write `recording` to `path`: the whole file or none, whatever happens on the way.

    Memory: one tensor at a time.
    """
    header, tensors = to_header(recording)
    target = target_of(path)
    beside = target.with_name(f".{target.name}.{os.getpid()}-{secrets.token_hex(4)}.part")
    # Wide numbers first, so that all are aligned.
    order = sorted(tensors, key=lambda name: -tensors[name].element_size())
    places, end = {}, 0
    for name in order:
        places[name] = Laid(tensors[name].dtype, tuple(tensors[name].shape), end)
        end += places[name].bytes
    head = encoded(header, places)
    head += b" " * padding(8 + len(head))
    try:
        with refusing(path), beside.open("xb") as out:
            out.write(len(head).to_bytes(8, "little") + head)
            for name in order:
                whole = tensors[name].detach().cpu().contiguous().reshape(-1)
                out.write(bytes_of(whole))
            out.flush()
            os.fsync(out.fileno())
        rename(beside, target, path)
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
        beside = Path(f"{shown}.partial")
        key = "errors.only_partial" if beside.is_file() else "errors.no_such_file"
        raise InvalidArgument(say(key, path=shown, partial=str(beside)))
    try:
        if _starts_with(Path(path), PARTIAL):
            from regard.record.recovery import recovered

            return recovered(path)
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
        key = "errors.damaged_file" if _starts_with(Path(path), FORMAT) else "errors.damaged_foreign"
        raise DamagedFile(say(key, path=shown, reason=str(error))) from error
    except OSError as error:
        raise RecordingError(say("errors.unreadable", path=shown, reason=reason_of(error))) from error
    except _MALFORMED as error:
        reason = " ".join(f"{type(error).__name__} {error}".split())[:200]
        raise DamagedFile(say("errors.damaged_file", path=shown, reason=reason)) from error


def target_of(path: str | PathLike[str]) -> Path:
    """The file that `path` means, links followed."""
    try:
        target = Path(os.path.realpath(path))
        mode = target.stat().st_mode if target.exists() else stat.S_IFREG
    except (ValueError, OSError) as error:  # a NUL in the name, say
        raise _refused(path, error) from error
    if not stat.S_ISREG(mode):  # a device would be replaced by a file
        code = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
        raise _refused(path, OSError(code, os.strerror(code)))
    return target


def rename(beside: Path, target: Path, shown: str | PathLike[str]) -> None:
    """Give a complete file its final name, to last through a power cut where the system allows it."""
    with refusing(shown):
        os.replace(beside, target)
    with suppress(OSError):
        handle = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def refusing(shown: str | PathLike[str]) -> Iterator[None]:
    """What the system refuses, as one sentence."""
    try:
        yield
    except OSError as error:
        raise _refused(shown, error) from error


def encoded(header: dict[str, Any], places: dict[str, Laid]) -> bytes:
    """The header of a file whose tensors lie at `places`, counted from the end of the header."""
    metadata = {
        "format": FORMAT,
        "version": str(version_of(header)),
        "header": json.dumps(header, allow_nan=False),
    }
    entries: dict[str, Any] = {"__metadata__": metadata}
    for name, laid in places.items():
        offsets = [laid.start, laid.start + laid.bytes]
        entries[name] = {"dtype": DTYPES[laid.dtype], "shape": list(laid.shape), "data_offsets": offsets}
    return json.dumps(entries).encode()


def _refused(path: str | PathLike[str], error: Exception) -> OutputError:
    return OutputError(say("errors.cannot_write", path=str(path), reason=reason_of(error)))


def _starts_with(path: Path, word: str) -> bool:
    """Whether a file begins as one of ours does."""
    try:
        with path.open("rb") as stream:
            return word.encode() in stream.read(256)
    except OSError:
        return False
