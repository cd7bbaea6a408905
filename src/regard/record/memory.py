"""Too little memory, said in one sentence with the way out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from regard.errors import RecordingError
from regard.words import say

_WORDS = ("out of memory", "allocate memory")  # of devices that raise plain RuntimeErrors, and of the CPU


def is_lack_of_memory(error: BaseException | None) -> bool:
    """Whether this is how Python, a device or the CPU's allocator says that there is no more memory."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(word in str(error).lower() for word in _WORDS)


def explained(error: BaseException) -> RecordingError:
    """The same as one sentence, with what was noted with it (a file that holds what was complete)."""
    reason = " ".join(str(error).split()).rpartition(": ")[2][:120] or type(error).__name__
    sentence = RecordingError(say("errors.out_of_memory", reason=reason.rstrip(".")))
    for note in getattr(error, "__notes__", ()):
        if note != str(sentence):
            sentence.add_note(note)
    return sentence


@contextmanager
def explaining() -> Iterator[None]:
    """Raise `RecordingError` where there is too little memory."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_lack_of_memory(error):
            raise
        raise explained(error) from error
