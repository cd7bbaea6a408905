"""Everything that Regard raises on purpose.

    RegardError
    ├── InvalidArgument (also a ValueError)     an argument that cannot be right: what came, what to do
    │   └── TooLong                             more tokens than the model, the page or the memory takes
    ├── ModelError
    │   ├── UnknownModel                        no model of this name, here or at any source
    │   ├── SourceUnreachable                   every source was tried; the message names each with its reason
    │   └── ChecksumMismatch                    a file is not the one the catalogue names
    ├── RecordingError
    │   ├── UnfaithfulRecording                 recomputed and real attention output differ at a site
    │   ├── NothingToRecord                     the model has no attention that can be observed
    │   └── DamagedFile                         no recording, a truncated one, or one of a newer version
    ├── OutputError                             a file that cannot be written
    └── MissingExtra (also an ImportError)      an optional dependency is not installed

The command line prints the message of any of these as one line and exits with status 2.
"""

from __future__ import annotations


class RegardError(Exception):
    """Base of all errors of this package."""


class InvalidArgument(RegardError, ValueError):
    """An argument that cannot be right."""


class TooLong(InvalidArgument):
    """More tokens than the model, the page or the memory takes.

    `tokens` and `limit` are numbers where they are counted: so many there are, so many there may be.
    """

    def __init__(self, message: str, *, tokens: int | None = None, limit: int | None = None) -> None:
        super().__init__(message)
        self.tokens = tokens
        self.limit = limit


class ModelError(RegardError):
    """A model cannot be had."""


class UnknownModel(ModelError):
    """No model of this name, here or at any source."""


class SourceUnreachable(ModelError):
    """Every source of a model was tried in vain."""


class ChecksumMismatch(ModelError):
    """A downloaded file is not the one the catalogue names."""


class RecordingError(RegardError):
    """A recording cannot be made or read."""


class UnfaithfulRecording(RecordingError):
    """Recomputed and real attention output differ at a site."""


class NothingToRecord(RecordingError):
    """The model has no attention that can be observed."""


class DamagedFile(RecordingError):
    """No recording, a truncated one, or one of a newer version."""


class OutputError(RegardError):
    """A file cannot be written."""


class MissingExtra(RegardError, ImportError):
    """An optional dependency is not installed."""
