"""Where fetched models lie, and how they get there whole: filled beside, checked, then renamed.

The folder is the platform's cache folder, or the one that the variable REGARD_CACHE names.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from regard.errors import ChecksumMismatch, OutputError
from regard.models.catalogue import Entry, File
from regard.words import say
from regard.words.system import reason_of

_STALE_S = 24 * 3600
_SUMS = "converted.json"  # a file of this name: what the others must be, as they were when they were written
_MARK = "from-hub"  # a file of this name: the small files are the Hub's own and may differ from the catalogue


def cache_folder() -> Path:
    """The folder of everything that Regard keeps between runs."""
    if chosen := os.environ.get("REGARD_CACHE"):
        return Path(chosen).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "regard"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "regard" / "cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "regard"


def folder_of(entry: Entry) -> Path:
    """The folder of a catalogue model; its name changes with the weights, so versions never mix."""
    weights = next(file for file in entry.files if file.is_weights)
    return cache_folder() / "models" / f"{entry.name}-{weights.sha256[:12]}"


def is_cached(entry: Entry) -> bool:
    """Whether all files are here with the right sizes (a glance: loading the model checks the hashes)."""
    folder = folder_of(entry)
    from_hub = (folder / _MARK).exists()
    files = _expected(entry, folder)
    for file in files:
        path = folder / file.name
        if not path.is_file() or (_must_match(file, from_hub) and path.stat().st_size != file.size_bytes):
            return False
    return bool(files)


def check(entry: Entry, folder: Path) -> None:
    """Raise `ChecksumMismatch` for the first file in `folder` that is not what the catalogue names."""
    from_hub = (folder / _MARK).exists()
    for file in _expected(entry, folder) or entry.files:
        if not _must_match(file, from_hub):
            continue
        path = folder / file.name
        found = sha256_of(path)
        if found != file.sha256:
            raise ChecksumMismatch(
                say("errors.checksum", file=str(path), expected=file.sha256[:12], found=found[:12])
            )


def mark_from_hub(folder: Path) -> None:
    """Note that the small files in `folder` are the Hub's own."""
    (folder / _MARK).touch()


def mark_converted(folder: Path) -> None:
    """Note what all files in `folder` are now: they were made here, and no catalogue names them."""
    sums = {path.name: (path.stat().st_size, sha256_of(path)) for path in sorted(folder.iterdir())}
    (folder / _SUMS).write_text(json.dumps(sums, indent=2) + "\n", encoding="utf-8")


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextmanager
def filling(target: Path) -> Iterator[Path]:
    """An empty folder beside `target` that takes its place when the block ends well, else vanishes."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _sweep(target.parent)
        partial = Path(tempfile.mkdtemp(prefix=".partial-", dir=target.parent))
    except OSError as error:
        raise OutputError(
            say("errors.cache_unwritable", path=str(target.parent), reason=reason_of(error))
        ) from error
    try:
        yield partial
        if target.exists():  # damaged, or another process was quicker: either way ours is whole
            aside = Path(tempfile.mkdtemp(prefix=".partial-", dir=target.parent))
            os.replace(target, aside / "old")
            shutil.rmtree(aside, ignore_errors=True)
        os.replace(partial, target)
    except OSError as error:
        raise OutputError(
            say("errors.cache_unwritable", path=str(target.parent), reason=reason_of(error))
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _expected(entry: Entry, folder: Path) -> tuple[File, ...]:
    """What must lie in the cache; nothing where a converted model is not there yet."""
    if not entry.converted:
        return entry.files
    try:
        sums = json.loads((folder / _SUMS).read_text(encoding="utf-8"))
        return tuple(File(name, int(size), str(digest)) for name, (size, digest) in sums.items())
    except (OSError, ValueError, TypeError, AttributeError):
        return ()


def _must_match(file: File, from_hub: bool) -> bool:
    return file.is_weights or not from_hub


def _sweep(folder: Path) -> None:
    """Remove what killed processes left behind more than a day ago."""
    for left in folder.glob(".partial-*"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > _STALE_S:
                shutil.rmtree(left, ignore_errors=True)
