"""One file holds a recording: whole or not at all, opened lazily, all else refused with one sentence."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

import regard
from regard.errors import DamagedFile, InvalidArgument, OutputError, RegardError
from regard.record.recording import Axis
from regard.record.tokens import numbered


@pytest.fixture
def stored(fox: Any, tmp_path: Path) -> Path:
    path = tmp_path / "fox.regard"
    fox.save(path)
    return path


def header_length(path: Path) -> int:
    return 8 + int.from_bytes(path.read_bytes()[:8], "little")


def test_what_is_opened_is_what_was_saved(minilm: Any, tmp_path: Path) -> None:
    recording = regard.record(
        minilm, ["He put the pen in the box.", "Short."], ["It was full.", "Yes </script>."]
    )
    known = recording.site(1).lse
    recording.save(tmp_path / "pair.regard")
    opened = regard.open(tmp_path / "pair.regard")
    assert opened.provenance == recording.provenance
    assert opened.proof == recording.proof
    assert opened.sequences == recording.sequences
    for mine, theirs in zip(opened.sites, recording.sites, strict=True):
        assert (mine.name, mine.layer, mine.kind, mine.scale) == (
            theirs.name, theirs.layer, theirs.kind, theirs.scale,
        )  # fmt: skip
        assert torch.equal(mine.query, theirs.query)
    assert torch.equal(opened.site(1).lse_if_known, known)
    assert opened.site(0).lse_if_known is None
    for item in range(2):
        assert torch.equal(opened.weights(layer=4, item=item), recording.weights(layer=4, item=item))


def test_opening_again_and_again_changes_nothing(stored: Path, tmp_path: Path) -> None:
    regard.open(stored).save(tmp_path / "again.regard")
    assert (tmp_path / "again.regard").read_bytes() == stored.read_bytes()


def test_a_file_may_be_saved_over_itself(stored: Path, fox: Any) -> None:
    opened = regard.open(stored)
    opened.save(stored)
    assert torch.equal(opened.weights(layer=0), regard.open(stored).weights(layer=0))


def test_masks_and_biases_that_sites_share_are_stored_once(minilm: Any, tmp_path: Path) -> None:
    regard.record(minilm, ["One.", "One two three."]).save(tmp_path / "batch.regard")
    with safe_open(tmp_path / "batch.regard", framework="pt") as file:
        assert [name for name in file.keys() if name.startswith("mask")] == ["mask.0.key_mask"]  # noqa: SIM118
    opened = regard.open(tmp_path / "batch.regard")
    assert len({id(site.mask) for site in opened.sites}) == 1


def test_bias_sinks_and_softcap_survive(fox: Any, tmp_path: Path) -> None:
    site = fox.site(0)
    n = site.query.shape[2]
    changed = dataclasses.replace(
        site, bias=torch.randn(1, 12, n, n), sinks=torch.randn(12), softcap=5.0, _lse=None, _lse_known=None
    )
    recording = regard.Recording((changed,), fox.sequences, fox.provenance)
    recording.save(tmp_path / "x.regard")
    opened = regard.open(tmp_path / "x.regard")
    assert torch.equal(opened.weights(layer=0), recording.weights(layer=0))
    assert (opened.weights(layer=0).sum(-1) < 1).all()  # the rest is the sink's


def test_half_precision_is_stored_as_it_is(tiny_bert: Any, tmp_path: Path) -> None:
    recording = regard.record(tiny_bert.to(torch.bfloat16), {"input_ids": torch.tensor([[5, 6, 7]])})
    recording.save(tmp_path / "half.regard")
    opened = regard.open(tmp_path / "half.regard")
    assert opened.site(0).query.dtype == torch.bfloat16
    assert torch.equal(opened.weights(layer=2), recording.weights(layer=2))


def test_opening_reads_no_tensor(fox: Any, tmp_path: Path) -> None:
    """134 MB of queries and keys open without that memory: pages come when they are looked at."""
    n = 1 << 16
    large = dataclasses.replace(
        fox.site(0), query=torch.zeros(1, 4, n, 64), key=torch.zeros(1, 4, n, 64), _lse=None, _lse_known=None
    )
    axis = Axis((numbered(n),), (range(n),))
    regard.Recording((large,), {"text": axis}, fox.provenance).save(tmp_path / "large.regard")
    before = psutil.Process().memory_info().rss
    opened = regard.open(tmp_path / "large.regard")
    tokens_bytes = psutil.Process().memory_info().rss - before
    assert tokens_bytes < 60e6
    assert opened.weights(layer=0, head=1, rows=5, cols=slice(0, 4)).shape == (4,)


def test_every_truncation_is_refused(stored: Path) -> None:
    whole = stored.read_bytes()
    for length in (0, 1, 7, 8, 9, 200, header_length(stored), len(whole) // 2, len(whole) - 1):
        stored.write_bytes(whole[:length])
        with pytest.raises(DamagedFile, match=r"damaged or incomplete|is no recording"):
            regard.open(stored)
    stored.write_bytes(whole + b"x")
    with pytest.raises(DamagedFile, match="damaged or incomplete"):
        regard.open(stored)


def refusal(path: Path) -> str | None:
    """What opening a file is refused with, if it is."""
    try:
        regard.open(path)
    except DamagedFile as error:
        return str(error)
    return None


def test_damage_to_the_header_never_gives_another_error(stored: Path) -> None:
    whole = bytearray(stored.read_bytes())
    end = header_length(stored)
    generator = torch.Generator().manual_seed(0)
    refused = 0
    for _ in range(300):
        at = int(torch.randint(0, end, (), generator=generator))
        bit = int(torch.randint(0, 8, (), generator=generator))
        damaged = bytearray(whole)
        damaged[at] ^= 1 << bit
        stored.write_bytes(damaged)
        sentence = refusal(stored)
        if sentence is not None:
            refused += 1
            assert str(stored) in sentence
            assert "\n" not in sentence
    assert refused > 100


def change_header(path: Path, change: Any) -> None:
    """Rewrite the JSON of a stored recording."""
    data = path.read_bytes()
    end = header_length(path)
    entries = json.loads(data[8:end])
    ours = json.loads(entries["__metadata__"]["header"])
    change(entries["__metadata__"], ours)
    entries["__metadata__"]["header"] = json.dumps(ours)
    encoded = json.dumps(entries).encode()
    path.write_bytes(len(encoded).to_bytes(8, "little") + encoded + data[end:])


@pytest.mark.parametrize(
    "change",
    [
        lambda _, header: header["sites"].clear(),
        lambda _, header: header["sites"][0].update(scale="large"),
        lambda _, header: header["sites"][0].update(queries="elsewhere"),
        lambda _, header: header["sites"][0].update(mask=7),
        lambda _, header: header["sites"][0].update(layer=None),
        lambda _, header: header["masks"].append({"rule": "unheard of"}),
        lambda _, header: header["sequences"]["text"]["spans"].append([0, 3]),
        lambda _, header: header["sequences"]["text"].update(spans=[[0, 99]]),
        lambda _, header: header["sequences"]["text"]["tokens"][0]["texts"].pop(),
        lambda _, header: header["sequences"]["text"].update(written=[1, 2]),
        lambda _, header: header["sequences"]["text"].update(written=[99]),
        lambda _, header: header.update(provenance={"model": "x"}),
        lambda _, header: header.update(provenance=[]),
        lambda _, header: header.pop("sites"),
    ],
)
def test_headers_that_do_not_fit_together_are_refused(stored: Path, change: Any) -> None:
    change_header(stored, change)
    with pytest.raises(DamagedFile, match="damaged or incomplete"):
        regard.open(stored)


def test_a_newer_version_is_refused_by_its_name(stored: Path) -> None:
    change_header(stored, lambda metadata, _: metadata.update(version="3"))
    with pytest.raises(DamagedFile, match=r"written by a newer Regard \(format 3; this one reads up to 2\)"):
        regard.open(stored)


def test_foreign_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "foreign"
    for content in (b"", b"PK\x03\x04 a zip", b"\x80\x04 a pickle", os.urandom(1000), b"{}", b"\xff" * 64):
        path.write_bytes(content)
        with pytest.raises(DamagedFile, match="is no recording of Regard"):
            regard.open(path)
    save_file({"weight": torch.zeros(3)}, path, metadata={"format": "pt"})
    with pytest.raises(DamagedFile, match="is no recording of Regard"):
        regard.open(path)
    with pytest.raises(InvalidArgument, match="There is no file"):
        regard.open(tmp_path / "nowhere.regard")
    with pytest.raises(RegardError):
        regard.open(tmp_path)


def test_a_place_that_cannot_be_written_is_refused_and_nothing_is_left(fox: Any, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot be written"):
        fox.save(tmp_path / "no" / "such" / "folder.regard")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OutputError, match="cannot be written"):
        fox.save(tmp_path / "folder")
    with pytest.raises(OutputError, match=r"cannot be written \(embedded null byte\)"):
        fox.save("a\0b.regard")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder"]


def test_a_full_disk_leaves_the_old_file_whole(
    stored: Path, fox: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = stored.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError, match="No space left on device"):
        fox.save(stored)
    assert stored.read_bytes() == whole
    assert [path.name for path in stored.parent.iterdir()] == [stored.name]


def test_a_process_killed_during_save_leaves_the_old_file_whole(stored: Path) -> None:
    whole = stored.read_bytes()
    program = textwrap.dedent(
        """
        import os, sys, time
        import regard
        from regard.record import store

        recording = regard.open(sys.argv[1])
        def hang(_):                       # the bytes are written, the renaming has not come
            print("writing", flush=True)
            time.sleep(60)
        os.fsync = hang
        recording.save(sys.argv[1])
        """
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(stored)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "writing\n"
    beside = [path for path in stored.parent.iterdir() if path != stored]
    assert len(beside) == 1
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert stored.read_bytes() == whole
    assert regard.open(stored).layers == (0, 1, 2, 3, 4, 5)


def test_processes_killed_at_any_moment_leave_a_whole_file(stored: Path) -> None:
    """A process that does nothing but save is killed at several moments: what lies there always opens."""
    program = (
        "import sys, regard\nr = regard.open(sys.argv[1])\nprint('go', flush=True)\n"
        "while True: r.save(sys.argv[1])"
    )
    for wait_s in (0.0, 0.003, 0.011, 0.026):
        process = subprocess.Popen(
            [sys.executable, "-c", program, str(stored)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "go\n"
        time.sleep(wait_s)
        process.kill()
        process.wait()
        process.stdout.close()
        assert regard.open(stored).shape(0) == (12, 12, 12)
