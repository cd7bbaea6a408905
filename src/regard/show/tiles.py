"""All weights of a head as a map that one can zoom: tiles of 256 × 256 pixels at every level.

    pixel[r, c] at level z = max (or mean) of weights[r·2^z : (r+1)·2^z, c·2^z : (c+1)·2^z]

A tile is computed when it is asked for, from queries and keys, strip by strip; n × n numbers are never held,
and a tile that nobody waits for any more is given up between two strips. A large tile is made of its four
quarters, down to 8192 × 8192 weights, and all of them are kept: for whoever zooms in, or comes back to a tile
that was given up.

    tile = step: float32 · code: uint16 (rows, columns), both little-endian
    weight = (code − 1) · step, within step / 2 = largest of the tile / 131068; code 0 = forbidden by the mask

Reference: Williams 1983, "Pyramidal parametrics" (pictures at every power of two).
"""

from __future__ import annotations

import math
import struct
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch import Tensor

from regard.attend.tiles import in_blocks, strips
from regard.errors import InvalidArgument, RecordingError
from regard.words import say

if TYPE_CHECKING:
    from jaxtyping import Float

    from regard.record.recording import Recording
    from regard.record.site import Site

SIDE = 256  # pixels of a tile
LEVELS = 65_534  # two bytes: one attention sink would hide all that is ordinary behind the steps of one
FORBIDDEN = -1.0
_DIRECT = 5  # the highest level whose tiles are computed from weights; those above are made of their quarters

Reduce = Literal["max", "mean"]
Stop = Callable[[], bool]


class GivenUp(Exception):
    """Nobody waits for this any more."""


def never() -> bool:
    """The Stop of work that is always finished."""
    return False


@dataclass(frozen=True)
class Place:
    """Where a tile lies: its level, and its row and column among the tiles of that level."""

    level: int
    row: int
    column: int

    def span(self, axis: Literal["row", "column"], length: int) -> slice:
        """The positions that the tile covers along an axis of `length`."""
        side = SIDE << self.level
        start = (self.row if axis == "row" else self.column) * side
        return slice(start, min(start + side, length))

    def quarters(self, queries: int, keys: int) -> list[list[Place]]:
        """The tiles of the level below that this one is made of, line by line."""
        side = SIDE << (self.level - 1)
        rows = [row for row in (2 * self.row, 2 * self.row + 1) if row * side < queries]
        columns = [column for column in (2 * self.column, 2 * self.column + 1) if column * side < keys]
        return [[Place(self.level - 1, row, column) for column in columns] for row in rows]


def top_level(queries: int, keys: int) -> int:
    """The level at which one tile shows everything."""
    return max(0, math.ceil(math.log2(max(queries, keys, 1) / SIDE)))


@dataclass
class Tiles:
    """The tiles of one item of a recording; those looked at last are kept. For any thread."""

    recording: Recording
    item: int = 0
    budget: int = 96 << 20  # bytes of pixels that are kept
    _kept: OrderedDict[tuple[object, ...], Tensor] = field(default_factory=OrderedDict, repr=False)
    _size: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _work: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def tile(self, site: int, head: int, place: Place, reduce: Reduce = "max", stop: Stop = never) -> bytes:
        """One tile, encoded.

        Raises InvalidArgument for what is not there, GivenUp when `stop` says so, RecordingError for weights
        that are not numbers.
        """
        of = self.site(site)
        self._check(of, head, place)
        if (found := self._find((site, head, reduce, place))) is None:
            with turn(self._work, stop):
                found = self._pixels(site, head, place, reduce, stop)
        return encode(found, of.name)

    def site(self, index: int) -> Site:
        """The site at this place of the header."""
        sites = self.recording.sites
        if not 0 <= index < len(sites):
            raise InvalidArgument(say("serve.no_such_site", index=index, most=len(sites) - 1))
        return sites[index]

    def spans(self, site: Site) -> tuple[range, range]:
        """Where the item's own queries and keys stand in the tensors."""
        sequences = self.recording.sequences
        return sequences[site.queries].spans[self.item], sequences[site.keys].spans[self.item]

    def lse(self, site: Site, head: int | None, rows: slice, stop: Stop) -> Float[Tensor, "h r"]:
        """The log-sum-exp of some rows, computed once; `rows` count in the tensors."""

        def look(what: str, done: int, total: int) -> None:
            if stop():
                raise GivenUp

        return site.lse_of(self.item, rows, head, progress=look)

    def _check(self, site: Site, head: int, place: Place) -> None:
        queries, keys = map(len, self.spans(site))
        side = SIDE << min(max(place.level, 0), 62)
        there = (
            head in site.head_numbers
            and 0 <= place.level <= top_level(queries, keys)
            and 0 <= place.row * side < queries
            and 0 <= place.column * side < keys
        )
        if not there:
            raise InvalidArgument(say("serve.no_such_tile", site=site.name))

    def _pixels(self, site: int, head: int, place: Place, reduce: Reduce, stop: Stop) -> Float[Tensor, "r c"]:
        """The pixels of a tile: kept ones, or those of its quarters, or pooled from weights."""
        name = (site, head, reduce, place)
        if (found := self._find(name)) is not None:
            return found
        if place.level <= _DIRECT:
            pixels = self._pooled(self.site(site), head, place, reduce, stop)
        else:
            queries, keys = map(len, self.spans(self.site(site)))
            quarters = [
                torch.cat([self._pixels(site, head, quarter, reduce, stop) for quarter in line], dim=1)
                for line in place.quarters(queries, keys)
            ]
            rows, cols = place.span("row", queries), place.span("column", keys)
            pixels = _halved(torch.cat(quarters), reduce, 1 << (place.level - 1), rows, cols)
        self._keep(name, pixels)
        return pixels

    def _pooled(
        self, site: Site, head: int, place: Place, reduce: Reduce, stop: Stop
    ) -> Float[Tensor, "r c"]:
        """A tile from queries and keys, strip by strip."""
        queries, keys = self.spans(site)
        rows = shifted(place.span("row", len(queries)), queries.start)
        cols = shifted(place.span("column", len(keys)), keys.start)
        block = 1 << place.level
        scores = site.scores(self.item, head)
        done = []
        with torch.no_grad():
            for strip in strips(rows, cols.stop - cols.start, block):
                lse = self.lse(site, head, strip, stop)
                if stop():
                    raise GivenUp
                done.append(in_blocks(scores, strip, cols, lse, (block, block), reduce, FORBIDDEN)[0])
        return torch.cat(done).float().cpu()

    def _find(self, name: tuple[object, ...]) -> Tensor | None:
        with self._lock:
            if name in self._kept:
                self._kept.move_to_end(name)
            return self._kept.get(name)

    def _keep(self, name: tuple[object, ...], pixels: Tensor) -> None:
        with self._lock:
            self._kept[name] = pixels
            self._size += pixels.nbytes
            while self._size > self.budget and len(self._kept) > 1:
                self._size -= self._kept.popitem(last=False)[1].nbytes


def encode(pixels: Float[Tensor, "r c"], name: str = "") -> bytes:
    """A tile as the page reads it; pixels below 0 are forbidden."""
    if not bool(torch.isfinite(pixels).all()):
        raise RecordingError(say("errors.not_a_number", site=name))
    step = pixels.amax().clamp(min=0) / LEVELS
    codes = (pixels / torch.where(step > 0, step, 1.0)).round_() + 1
    codes = torch.where(pixels < 0, 0.0, codes)
    return struct.pack("<f", float(step)) + codes.cpu().numpy().astype("<u2").tobytes()


def decode(tile: bytes, rows: int, columns: int) -> Float[Tensor, "r c"]:
    """The pixels of a tile as the page computes them; forbidden ones are −1."""
    step = torch.from_numpy(np.frombuffer(tile, "<f4", count=1).copy())
    codes = torch.from_numpy(np.frombuffer(tile, "<u2", offset=4).reshape(rows, columns).astype("f4"))
    return torch.where(codes == 0, FORBIDDEN, (codes - 1) * step)


def shifted(positions: slice, by: int) -> slice:
    """A slice moved to where an item's own tokens begin."""
    return slice(positions.start + by, positions.stop + by)


@contextmanager
def turn(lock: threading.Lock, stop: Stop) -> Iterator[None]:
    """Hold a lock for a block, unless `stop` says that nobody waits any more."""
    while not lock.acquire(timeout=0.05):
        if stop():
            raise GivenUp
    try:
        yield
    finally:
        lock.release()


def _halved(
    pixels: Float[Tensor, "r c"], reduce: Reduce, block: int, rows: slice, cols: slice
) -> Float[Tensor, "R C"]:
    """The next level: 2 × 2 pixels, each of `block` × `block` weights (fewer at the end), become one."""
    high, wide = (
        torch.arange(0, s.stop - s.start, block).sub(s.stop - s.start).neg().clamp(max=block).float()
        for s in (rows, cols)
    )
    largest = _fours(pixels, FORBIDDEN).amax((1, 3))
    if reduce == "max":
        return largest
    counts = (high[:, None] * wide).to(pixels.device)
    means = _fours(pixels.clamp(min=0) * counts, 0.0).sum((1, 3)) / _fours(counts, 0.0).sum((1, 3))
    return torch.where(largest < 0, FORBIDDEN, means)


def _fours(pixels: Float[Tensor, "r c"], fill: float) -> Float[Tensor, "R 2 C 2"]:
    rows, columns = pixels.shape
    if rows % 2 or columns % 2:
        pixels = torch.nn.functional.pad(pixels, (0, columns % 2, 0, rows % 2), value=fill)
    return pixels.reshape(pixels.shape[0] // 2, 2, pixels.shape[1] // 2, 2)
