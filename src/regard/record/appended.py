"""A file that grows at its end and is mapped as it grows: what FileShelf writes into.

What was written can be read at once, as tensors in mapped memory, and the system may put it out of memory
again. The file is made longer ahead of what is written, as a hole, and cut off when it is closed.
"""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Iterator
from contextlib import suppress
from os import PathLike
from pathlib import Path

import torch
from torch import Tensor

from regard.record import store
from regard.record.dtypes import bytes_of
from regard.record.journal import Laid, opening, padding, view
from regard.record.shelf import nbytes

_SEGMENT = 1 << 28  # bytes mapped at once, at least
_BLOCK = 1 << 12  # bytes at the front that the disk has, since the opening stands there
_PIECE = 1 << 20  # bytes that are copied at once, to bring them in order


class Appended:
    """A file that grows at its end and is mapped as it grows."""

    def __init__(self, place: Path, shown: str | PathLike[str]) -> None:
        self.first = self.end = 0
        self._shown = shown
        # All of them live as long as this: so no other tensor ever comes to lie where one of these lay.
        self._segments: list[mmap.mmap] = []
        self._mapped = range(0)
        with store.refusing(shown):
            self._handle = _new(place)

    def start(self, room: int) -> None:
        """Leave room for a header of so many bytes."""
        room += padding(8 + room)
        self.append(opening(room))
        self.first = self.end = 8 + room

    def append(self, data: bytes | memoryview) -> int:
        """Write at the end; returns where."""
        start = self.end
        self.write(data, start)
        self.end += len(data)
        return start

    def leave(self, size: int) -> int:
        """Go on `size` bytes behind the end; returns where that was."""
        self.end += size
        return self.end - size

    def write(self, data: bytes | memoryview, at: int) -> None:
        """Write at a place of the file."""
        rest = memoryview(data)
        with store.refusing(self._shown):
            while rest:
                done = _written(self._handle, rest, at)
                at, rest = at + done, rest[done:]

    def append_tensor(self, tensor: Tensor) -> int:
        """Write the numbers of a tensor at the end, filled up to the next aligned byte."""
        start = self.end
        for piece in _pieces(tensor.detach()):
            self.append(bytes_of(piece))
        self.append(bytes(padding(self.end)))
        return start

    def view(self, laid: Laid) -> Tensor:
        """A tensor of this file, read when it is looked at."""
        stop = laid.start + laid.bytes
        if not laid.bytes:
            return torch.empty(laid.shape, dtype=laid.dtype)
        if laid.start < self._mapped.start or stop > self._mapped.stop:
            start = laid.start - laid.start % mmap.ALLOCATIONGRANULARITY
            with store.refusing(self._shown):
                try:
                    self._map(start, max(_SEGMENT, stop - start))
                except OSError:  # files, or memory, may not grow so far: then by this tensor alone
                    self._map(start, stop - start)
        return view(self._segments[-1], laid, self._mapped.start)

    def _map(self, start: int, size: int) -> None:
        if os.fstat(self._handle).st_size < start + size:  # a hole; cut off again at the end
            os.ftruncate(self._handle, start + size)
        self._segments.append(mmap.mmap(self._handle, size, access=mmap.ACCESS_WRITE, offset=start))
        self._mapped = range(start, start + size)

    def room(self, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
        """Zeros at the end, to be written to; the disk has room for them, or an error is raised now."""
        laid = Laid(dtype, shape, self.end)
        with store.refusing(self._shown):
            _allocate(self._handle, self.end, laid.bytes + padding(laid.bytes))
        self.end += laid.bytes + padding(laid.bytes)
        return self.view(laid)

    def complete(self, header: bytes) -> None:
        """Write the header in front, and make all of it last."""
        size = self.first - 8
        with store.refusing(self._shown):
            os.ftruncate(self._handle, self.end)
            whole = size.to_bytes(8, "little") + header.ljust(size)
            self.write(whole[_BLOCK:], _BLOCK)  # if the disk is full, the file still begins as a partial one
            os.fsync(self._handle)
            self.write(whole[:_BLOCK], 0)
            os.fsync(self._handle)

    def close(self) -> None:
        """Let go of the file; what is mapped stays."""
        if self._handle >= 0:
            with suppress(OSError):
                os.ftruncate(self._handle, self.end)
                _lock(self._handle, free=True)
            os.close(self._handle)
            self._handle = -1
            self._segments.clear()


def _pieces(tensor: Tensor) -> Iterator[Tensor]:
    """The numbers of a tensor in order, in main memory, as flat pieces of bounded size."""
    if tensor.is_contiguous() and tensor.device.type == "cpu":
        if tensor.numel():
            yield tensor.reshape(-1)
    elif nbytes(tensor) <= _PIECE or tensor.ndim == 0:
        yield tensor.cpu().contiguous().reshape(-1)
    elif len(tensor) == 1:
        yield from _pieces(tensor[0])
    else:
        rows = max(1, _PIECE * len(tensor) // nbytes(tensor))
        for part in tensor.split(rows):  # type: ignore[no-untyped-call]
            yield from _pieces(part)


def _new(place: Path) -> int:
    """Open a new file, in place of one that no recorder is writing.

    What was there is not written over: another recording may still be reading it.
    """
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0)
    handle = os.open(place, flags, 0o666)
    try:
        _lock(handle)
        if not os.path.samestat(os.fstat(handle), os.stat(place)):  # another recorder was quicker
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        if os.fstat(handle).st_size:
            os.unlink(place)
            os.close(handle)
            handle = -1
            handle = os.open(place, flags | os.O_EXCL, 0o666)
            _lock(handle)
    except OSError:
        if handle >= 0:
            os.close(handle)
        raise
    return handle


def _written(handle: int, data: memoryview, at: int) -> int:
    """Write some of `data`; returns how many bytes."""
    if hasattr(os, "pwrite"):
        return os.pwrite(handle, data, at)
    os.lseek(handle, at, os.SEEK_SET)
    return os.write(handle, data)


def _lock(handle: int, *, free: bool = False) -> None:
    """Refuse a file that another recorder is writing; or let others have it."""
    with suppress(ImportError):  # not everywhere
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_UN if free else fcntl.LOCK_EX | fcntl.LOCK_NB)


def _allocate(handle: int, start: int, size: int) -> None:
    """Make the file longer by bytes that the disk has, all of them zeros."""
    if hasattr(os, "posix_fallocate"):
        if size:
            os.posix_fallocate(handle, start, size)
        return
    zeros, at = memoryview(bytes(min(size, _PIECE))), start
    while at < start + size:
        at += _written(handle, zeros[: start + size - at], at)
