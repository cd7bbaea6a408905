"""Addresses for recordings too long to be sent whole: tiles of the map, exact rows, columns and cells.

    GET /api/tiles/{site}/{head}/{level}/{row}/{column}?reduce=max  a tile, as show/tiles.py writes it
    GET /api/rows/{site}/{row}?k=32                                 one query, all heads, its largest weights
    GET /api/columns/{site}/{head}/{column}?k=32                    one key, who reads it most
    GET /api/lines/{site}/{row}?count=32&k=6                        the strongest lines of some queries
    GET /api/cells/{site}/{head}/{row}/{column}?rows=1&columns=1    exact weights, float32

`?recording=` names the recording by the header's id. Work runs in threads and is given up when the page that
asked has gone on: a map asks for many tiles that it soon needs no more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from regard.errors import InvalidArgument
from regard.serve.session import Session
from regard.serve.there import nobody, while_there
from regard.show import readings
from regard.show.tiles import GivenUp, Place, Stop, Tiles
from regard.words import say

T = TypeVar("T")
Count = Annotated[int, Query(ge=1, le=256)]


def routes(session: Session) -> APIRouter:
    """The addresses for the recordings of one session."""
    router = APIRouter(prefix="/api")

    async def answer(request: Request, name: str | None, work: Callable[[Tiles, Stop], T]) -> T | Response:
        tiles = session.tiles(name)
        if tiles is None:
            raise HTTPException(404, say("serve.recording_gone" if name else "serve.nothing_recorded"))
        try:
            return await while_there(request, session.ending, lambda stop: work(tiles, stop))
        except GivenUp:
            return nobody()
        except InvalidArgument as error:
            raise HTTPException(404, str(error)) from None

    @router.get("/tiles/{site}/{head}/{level}/{row}/{column}")
    async def tile(
        request: Request,
        site: int,
        head: int,
        level: int,
        row: int,
        column: int,
        reduce: Literal["max", "mean"] = "max",
        recording: str | None = None,
    ) -> Response:
        place = Place(level, row, column)
        return _bytes(
            await answer(request, recording, lambda t, stop: t.tile(site, head, place, reduce, stop))
        )

    @router.get("/rows/{site}/{row}", response_model=None)
    async def row(
        request: Request, site: int, row: int, k: Count = 32, recording: str | None = None
    ) -> dict[str, Any] | Response:
        return await answer(request, recording, lambda t, stop: readings.row(t, site, row, k, stop))

    @router.get("/columns/{site}/{head}/{column}", response_model=None)
    async def column(
        request: Request, site: int, head: int, column: int, k: Count = 32, recording: str | None = None
    ) -> dict[str, Any] | Response:
        return await answer(
            request, recording, lambda t, stop: readings.column(t, site, head, column, k, stop)
        )

    @router.get("/lines/{site}/{row}", response_model=None)
    async def lines(
        request: Request,
        site: int,
        row: int,
        count: Count = 32,
        k: Count = 6,
        recording: str | None = None,
    ) -> dict[str, Any] | Response:
        return await answer(request, recording, lambda t, stop: readings.lines(t, site, row, count, k, stop))

    @router.get("/cells/{site}/{head}/{row}/{column}")
    async def cells(
        request: Request,
        site: int,
        head: int,
        row: int,
        column: int,
        rows: Count = 1,
        columns: Count = 1,
        recording: str | None = None,
    ) -> Response:
        at, across = range(row, row + rows), range(column, column + columns)
        return _bytes(
            await answer(request, recording, lambda t, _: readings.cells(t, site, head, at, across))
        )

    return router


def _bytes(answer: bytes | Response) -> Response:
    if isinstance(answer, Response):
        return answer
    return Response(answer, media_type="application/octet-stream")
