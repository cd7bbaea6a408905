"""An export is one inert, self-contained file, written whole or not at all."""

from __future__ import annotations

import base64
import json
import re
import stat
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.errors import OutputError
from regard.show import files, html
from regard.show.payload import decode, payload


def data_in(page: str) -> dict[str, Any]:
    found = re.findall(r'<script type="application/json" id="regard-data">(.*?)</script>', page, re.DOTALL)
    assert len(found) == 1
    loaded: dict[str, Any] = json.loads(found[0])
    return loaded


def test_the_file_holds_the_weights_of_the_recording(small: Any, tmp_path: Path) -> None:
    path = regard.export(small, tmp_path / "small.html")
    data = data_in(path.read_text(encoding="utf-8"))
    assert data["kind"] == "recording"
    for site, chunk in zip(data["header"]["sites"], data["chunks"], strict=True):
        shown = decode(base64.b64decode(chunk), site["heads"], 7, 7)
        weights = small.weights(layer=site["layer"])
        assert float((shown - weights).abs().max()) <= 0.002


def test_hostile_tokens_survive_exactly_and_cannot_leave_their_script(hostile: Any, tmp_path: Path) -> None:
    page = regard.export(hostile, tmp_path / "hostile.html").read_text(encoding="utf-8")
    tokens = hostile.tokens().texts
    data = data_in(page)
    assert data["header"]["sequences"]["text"]["tokens"] == list(tokens)
    assert "<img src=x" not in page
    between = page[page.index('id="regard-data">') + len('id="regard-data">') :]
    between = between[: between.index("</script>")]
    assert not set("<>&") & set(between)


def test_the_exported_page_forbids_every_connection_and_names_no_other_origin(
    small: Any, tmp_path: Path
) -> None:
    page = regard.export(small, tmp_path / "small.html").read_text(encoding="utf-8")
    policy = re.search(r'http-equiv="Content-Security-Policy"\s+content="([^"]*)"', page)
    assert policy
    assert "connect-src 'none'" in policy[1]
    assert "default-src 'none'" in policy[1]
    assert not re.findall(r"<(?:script|link|img|iframe)[^>]+(?:src|href)=[\"']?(?:https?:)?//", page)


def test_a_path_that_cannot_be_written_is_one_sentence_and_keeps_the_old_file(
    small: Any, tmp_path: Path
) -> None:
    with pytest.raises(
        OutputError, match=r"missing/fox\.html cannot be written \(No such file or directory\)"
    ):
        regard.export(small, tmp_path / "missing" / "fox.html")
    with pytest.raises(OutputError, match="Is a directory"):
        regard.export(small, tmp_path)
    with pytest.raises(OutputError, match="cannot be written"):
        regard.export(small, tmp_path / "nul\0.html")
    assert list(tmp_path.iterdir()) == []


def test_a_write_that_fails_half_way_leaves_the_old_file_and_no_litter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "page.html"
    target.write_bytes(b"old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OutputError, match="No space left on device"):
        files.write_atomically(target, b"new")
    assert target.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_a_written_file_replaces_the_old_one_with_ordinary_permissions(tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    target.write_bytes(b"old")
    reference = tmp_path / "reference"
    reference.touch()
    assert files.write_atomically(target, b"new") == target
    assert target.read_bytes() == b"new"
    assert stat.S_IMODE(target.stat().st_mode) == stat.S_IMODE(reference.stat().st_mode)


def test_a_missing_front_end_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(html, "files", lambda _: tmp_path)
    with pytest.raises(OutputError, match=r"The page view\.html is missing from this installation"):
        html.front_end("view")


def test_a_page_without_a_place_for_data_is_refused(small: Any) -> None:
    with pytest.raises(OutputError, match="no place for data"):
        html.with_data("<html></html>", payload(small).header)
