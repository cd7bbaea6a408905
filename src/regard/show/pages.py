"""The built pages: explorer and lessons as one offline HTML file, all three as the application sends them.

Every page reads its state from the fragment of its address, and where that says nothing from the attribute
``data-view`` of ``<html>``: so a saved page can begin with anything that a link can say.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from regard.errors import OutputError
from regard.show.files import write_atomically
from regard.show.html import front_end
from regard.words import get_language, say

if TYPE_CHECKING:
    import os

_HEAD = '<html lang="en">'


def page(name: str, state: Mapping[str, object] | None = None) -> str:
    """The page `name` (explore or learn) in the language in force, beginning with `state`."""
    language = get_language()
    begin = escape(urlencode({"lang": language, **(state or {})}), quote=True)
    built = _with_head(name, f'<html lang="{language}" data-view="{begin}">')
    return built.replace("connect-src 'self'", "connect-src 'none'", 1)


def served(name: str) -> str:
    """The page `name` as the application sends it: marked, so that it links to the other pages beside it."""
    return _with_head(name, '<html lang="en" data-served>')


def _with_head(name: str, head: str) -> str:
    built = front_end(name)
    if _HEAD not in built:
        raise OutputError(say("errors.front_end_foreign"))
    return built.replace(_HEAD, head, 1)


def write_page(name: str, path: str | os.PathLike[str], state: Mapping[str, object] | None = None) -> Path:
    """Write the page `name` to `path` and return the path; raises OutputError when that cannot be."""
    return write_atomically(path, page(name, state).encode())
