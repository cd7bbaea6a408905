"""The command line: `regard COMMAND …`. One command a file, imported when it is called or listed."""

from __future__ import annotations


def main() -> None:
    """Entry point of the program `regard`."""
    try:
        from regard.cli.program import main as run

        run()
    except KeyboardInterrupt:  # while the program itself is still being read
        raise SystemExit(130) from None
