"""What a command says of the file that it wrote: its name and size."""

from __future__ import annotations

from pathlib import Path

from regard.words import get_language, say

_SMALL = 100_000  # bytes below which a size is said in kilobytes


def wrote(path: str | Path, size_bytes: int | None = None) -> str:
    """The line; `size_bytes` where it is not that of the file itself, as for a folder."""
    size = Path(path).stat().st_size if size_bytes is None else size_bytes
    if size < _SMALL:
        said = say("cli.kilobytes", size=_decimal(f"{size / 1e3:.1f}"))
    else:
        said = say("cli.megabytes", size=_decimal(f"{size / 1e6:.2f}"))
    return say("cli.wrote", path=path, size=said)


def _decimal(number: str) -> str:
    return number.replace(".", ",") if get_language() == "fr" else number
