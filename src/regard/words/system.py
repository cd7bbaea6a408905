"""What the system refuses, in the language in force; its own words are in the language of the machine."""

from __future__ import annotations

import errno

from regard.words import say

# number of an error -> key of the words that say it
_KEYS = {
    errno.ENOENT: "system.missing",
    errno.ENOTDIR: "system.no_folder",
    errno.EISDIR: "system.folder",
    errno.EACCES: "system.not_allowed",
    errno.EPERM: "system.not_allowed",
    errno.EROFS: "system.read_only",
    errno.ENOSPC: "system.full",
    errno.ENAMETOOLONG: "system.long_name",
    errno.EAGAIN: "system.in_use",
}


def reason_of(error: BaseException) -> str:
    """Why the system refused; in its own words where we have none."""
    key = _KEYS.get(getattr(error, "errno", None) or 0)
    if key is not None:
        return say(key)
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
