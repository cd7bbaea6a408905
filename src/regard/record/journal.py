"""The journal of a recording that is being written: what was heard so far, in order.

    length · header, still to come · record · record · …
    record = "RGRD" · bytes of JSON · CRC of it · bytes of data · JSON · data,   each padded to 64 bytes

A record says what happened (a run began, a step, a call, a mask) and holds its tensors. Its head is written
after its data: so what begins as a record is a whole one, wherever the writing stopped. When the run has
ended, the header is put in front, the records become tensors between the tensors, and the file is a recording
like any other (filing.py). When it never ended, what the records tell is told again (recovery.py).
"""

from __future__ import annotations

import json
import mmap
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any, BinaryIO

import torch
from torch import Tensor

from regard.record.dtypes import DTYPES, TYPES

PARTIAL = "regard.partial"
ALIGNMENT = 64
_MOST, _AXES = 1 << 31, 8  # of the sizes of a tensor, which may be of no bytes all the same
_MAGIC = b"RGRD"
_HEAD = struct.Struct("<4sIIQ4x")  # 24 bytes


@dataclass(frozen=True)
class Laid:
    """Where a tensor lies, from the start of its record or file."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int

    @property
    def bytes(self) -> int:
        """How many bytes it takes."""
        return prod(self.shape) * self.dtype.itemsize


def padding(size: int) -> int:
    """Bytes that lack to the next aligned one."""
    return -size % ALIGNMENT


def opening(size: int) -> bytes:
    """The first bytes of a file whose header will take `size` bytes, with its length."""
    text = json.dumps({"__metadata__": {"format": PARTIAL, "version": "1"}}).encode()
    return size.to_bytes(8, "little") + text


def pack(event: dict[str, Any], tensors: dict[str, Tensor]) -> tuple[bytes, dict[str, Laid]]:
    """The head of a record, and where behind its first byte each tensor is to lie."""
    described = {name: [DTYPES[t.dtype], list(t.shape)] for name, t in tensors.items()}
    text = json.dumps({**event, "tensors": described}).encode()
    text += b" " * padding(_HEAD.size + len(text))
    places, start = _lay(described, _HEAD.size + len(text))
    head = _HEAD.pack(_MAGIC, len(text), zlib.crc32(text), start - _HEAD.size - len(text))
    return head + text, places


class NotARecord(ValueError):
    """A record that says of its tensors what cannot be."""


def records(file: BinaryIO) -> Iterator[tuple[dict[str, Any], dict[str, Tensor]]]:
    """The complete records of a file, in order, their tensors mapped and not read.

    Raises `NotARecord` where one was made by hand and does not hold what it says.
    """
    file.seek(0)
    first = 8 + int.from_bytes(file.read(8), "little")
    size = file.seek(0, 2)
    if size <= first:
        return
    mapped = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY)
    at = first
    while at + _HEAD.size <= size:
        magic, of_text, checked, of_data = _HEAD.unpack_from(mapped, at)
        data = at + _HEAD.size + of_text
        text = mapped[at + _HEAD.size : data]
        if magic != _MAGIC or data + of_data > size or zlib.crc32(text) != checked:
            return
        event = json.loads(text)
        places, end = _lay(_checked(event.pop("tensors")), data)
        if end > data + of_data:
            raise NotARecord(f"a record of {of_data} bytes")
        yield event, {name: view(mapped, laid) for name, laid in places.items()}
        at = data + of_data


def view(mapped: mmap.mmap, laid: Laid, offset: int = 0) -> Tensor:
    """A tensor in mapped memory that begins `offset` bytes into the file."""
    count = prod(laid.shape)
    if not count:
        return torch.empty(laid.shape, dtype=laid.dtype)
    flat = torch.frombuffer(mapped, dtype=laid.dtype, count=count, offset=laid.start - offset)
    return flat.reshape(laid.shape)


def _checked(described: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Names, types and shapes of tensors, as they may be."""
    for name, (dtype, shape) in described.items():
        sizes = all(type(size) is int and 0 <= size < _MOST for size in shape)
        if dtype not in TYPES or not sizes or len(shape) > _AXES:
            raise NotARecord(f"{name}: {dtype} {shape}")
    return described


def _lay(described: dict[str, list[Any]], start: int) -> tuple[dict[str, Laid], int]:
    """Where tensors lie that follow each other from `start`, and where the last one ends."""
    places = {}
    for name, (dtype, shape) in described.items():
        places[name] = Laid(TYPES[dtype], tuple(shape), start)
        start += places[name].bytes
        start += padding(start)
    return places, start
