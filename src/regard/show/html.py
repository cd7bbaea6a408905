"""A recording as one HTML file: the built page with its data put in, which opens offline.

The page reads ``<script type="application/json" id="regard-data">``. In there only `<`, `>` and `&` could end
the script or start a comment; as JSON escapes (``\\u003c``) they are inert, whatever a token says.
"""

from __future__ import annotations

import base64
import json
import re
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.errors import OutputError
from regard.show.files import write_atomically
from regard.show.payload import Payload, payload
from regard.words import say

if TYPE_CHECKING:
    import os

    from regard.record.progress import Progress
    from regard.record.recording import Recording

_DATA = re.compile(r'(<script type="application/json" id="regard-data">).*?(</script>)', re.DOTALL)
_ESCAPES = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


def export(
    recording: Recording, path: str | os.PathLike[str], *, item: int = 0, progress: Progress | None = None
) -> Path:
    """Write the view of a recording as one HTML file and return its path.

    The file opens offline, weighs about a third of a byte per weight or less, and shows every weight within
    0.002. It is written beside its final name and renamed, so an old file stays whole until the new one is.
    `progress` is called with ("packing", attentions done, attentions in all).

    Raises TooLong when the recording holds more weights than one file should, OutputError when the file
    cannot be written or the front end is missing from the installation.

    Example::

        regard.export(regard.record(regard.load("minilm"), "The quick brown fox."), "fox.html")
    """
    page = html(payload(recording, item=item, progress=progress))
    return write_atomically(path, page.encode())


def html(data: Payload) -> str:
    """The page that shows `data` and nothing else: its Content-Security-Policy forbids every connection."""
    chunks = [base64.b64encode(chunk).decode("ascii") for chunk in data.chunks]
    page = with_data(front_end("view"), {"kind": "recording", "header": data.header, "chunks": chunks})
    return page.replace("connect-src 'self'", "connect-src 'none'", 1)


def with_data(page: str, data: Any) -> str:
    """A built page with `data` in the script element that it reads at its start."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).translate(_ESCAPES)
    filled, count = _DATA.subn(lambda found: found[1] + text + found[2], page, count=1)
    if not count:
        raise OutputError(say("errors.front_end_foreign"))
    return filled


def front_end(name: str) -> str:
    """The built page `name` (view, explore or learn), as the wheel ships it."""
    try:
        return files("regard").joinpath("static", f"{name}.html").read_text(encoding="utf-8")
    except OSError:
        raise OutputError(say("errors.front_end_missing", page=f"{name}.html")) from None
