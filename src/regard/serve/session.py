"""What one running application holds: the recording on screen, as a payload, and one loaded model.

Making a new recording replaces the old one only when it has succeeded, payload included. Pages opened on an
older recording ask for its chunks by its id, so two windows can never mix the numbers of two recordings.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from regard.errors import InvalidArgument
from regard.show.payload import Payload, payload
from regard.show.tiles import GivenUp, Stop, Tiles, never, turn
from regard.words import say

if TYPE_CHECKING:
    from regard.models.loading import Subject
    from regard.record.progress import Progress
    from regard.record.recording import Recording

MAX_CHARACTERS = 200_000
KEPT = 4  # payloads, so that pages opened earlier still find their chunks
KEPT_LONG = 2  # of them with tiles: these keep the queries and keys of a long text


@dataclass(frozen=True)
class Limits:
    """What a person may send at once."""

    texts: int = 2
    characters: int = MAX_CHARACTERS


class Session:
    """The state behind one server. Every method may be called from any thread."""

    def __init__(self, *, model: str = "minilm", limits: Limits | None = None) -> None:
        self.model = model
        self.limits = limits or Limits()
        self._payloads: dict[str, Payload] = {}  # oldest first
        self._latest: Payload | None = None
        self._tiles: dict[str, Tiles] = {}  # of the payloads that have tiles
        self._subject: tuple[str, Subject] | None = None
        self.ending = threading.Event()  # set when the server goes: what is under way is given up
        self._busy = threading.Lock()  # one model runs at a time
        self._progress: dict[str, tuple[str, int, int]] = {}  # of the runs under way, by their name

    def show(
        self, recording: Recording, subject: Subject | None = None, *, progress: Progress | None = None
    ) -> Payload:
        """Put a recording on screen; `subject`, the model that made it, is kept for the next text."""
        shown = payload(recording, tiled=True, progress=progress)
        name = secrets.token_urlsafe(6)
        shown = Payload({**shown.header, "id": name}, shown.chunks)
        self._payloads[name] = self._latest = shown
        if shown.tiled:
            self._tiles[name] = Tiles(recording)
        for old in (*list(self._payloads)[:-KEPT], *list(self._tiles)[:-KEPT_LONG]):
            self._payloads.pop(old, None)
            self._tiles.pop(old, None)
        if subject is not None:
            self._subject = (self.model, subject)
        return shown

    def payload(self, name: str | None = None) -> Payload | None:
        """The payload of this id, or the latest; None where there is none (any more)."""
        return self._latest if name is None else self._payloads.get(name)

    def tiles(self, name: str | None = None) -> Tiles | None:
        """The tiles of the recording of this id, or of the latest; None where it has none."""
        latest = self._latest
        return self._tiles.get(name or (latest.header["id"] if latest else ""))

    def record(
        self,
        texts: Sequence[str],
        *,
        model: str | None = None,
        truncate: bool = False,
        run: str = "",
        stop: Stop = never,
    ) -> dict[str, Any]:
        """Record one text or a pair, show the recording and return its header. Errors change nothing.

        `progress` tells how far it is under the name `run`; between two attentions it is given up (GivenUp)
        when `stop` says so.
        """
        self._check(texts)

        def tell(what: str, done: int, total: int) -> None:
            if stop():
                raise GivenUp
            self._progress[run] = (what, done, total)

        try:
            tell("waiting", 0, 0)
            with turn(self._busy, stop):
                import regard

                subject = self._load(model or self.model, tell)
                recording = regard.record(subject, *texts, truncate=truncate, progress=tell)
                return self.show(recording, progress=tell).header
        finally:
            self._progress.pop(run, None)

    def progress(self, run: str) -> tuple[str, int, int] | None:
        """What the run of this name does, how much of it is done and how much there is; None without one."""
        return self._progress.get(run)

    def _load(self, name: str, tell: Progress) -> Subject:
        if self._subject is not None and name in (self._subject[0], self._subject[1].name):
            return self._subject[1]
        import regard

        tell("loading", 0, 0)
        self._subject = None  # two models at once may not fit into memory
        loaded: Subject = regard.load(name, progress=lambda _, done, total: tell("loading", done, total))
        self._subject = (name, loaded)
        return loaded

    def _check(self, texts: Sequence[str]) -> None:
        if not 1 <= len(texts) <= self.limits.texts:
            raise InvalidArgument(say("serve.count_of_texts", most=self.limits.texts, got=len(texts)))
        longest = max(len(text) for text in texts)
        if longest > self.limits.characters:
            raise InvalidArgument(say("serve.too_many_characters", most=self.limits.characters, got=longest))
