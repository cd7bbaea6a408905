"""Files that are whole or not there: written beside their final name, then renamed over it."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from pathlib import Path

from regard.errors import OutputError
from regard.words import say
from regard.words.system import reason_of


def check_place(path: str | os.PathLike[str]) -> None:
    """Raise OutputError where nothing can be written at `path`; asked before work that takes long."""
    target = Path(path)
    try:
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        with contextlib.suppress(FileNotFoundError):
            os.lstat(target)  # refuses names that cannot be
        os.stat(target.parent)
        if not os.access(target.parent, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise OutputError(say("errors.cannot_write", path=path, reason=reason_of(error))) from error


def write_atomically(path: str | os.PathLike[str], content: bytes) -> Path:
    """Put `content` at `path`, replacing an old file only by a complete new one. Raises OutputError."""
    target = Path(path)
    beside = target.parent / f".{target.name[:100]}.{secrets.token_hex(4)}.part"
    try:
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        with beside.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(target)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise OutputError(say("errors.cannot_write", path=target, reason=reason_of(error))) from error
    finally:
        with contextlib.suppress(OSError, ValueError):
            beside.unlink()
    return target
