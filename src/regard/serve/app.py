"""The local web application: one page and the few addresses that it asks.

    GET  /                 the page (explore.html and learn.html beside it)
    GET  /api/recording    header of the recording on screen; 204 while there is none
    GET  /api/chunks/{i}   weights of its site i, compressed (?recording= names one by the header's id)
    POST /api/record       record another text: {"text": [...], "model": …, "truncate": false} → header
    GET  /api/progress/{r} how far the run is that was asked for with "run": r; 204 when there is none
    GET  /api/models       what can be loaded
    GET  /api/export       the one-file HTML
    GET  /api/tiles/…      and rows, columns, lines, cells: long recordings bit by bit (serve/tiles.py)

Errors are {"error": one sentence, "kind": class name} with a status 4xx. Work that takes long runs in
threads, and ends when the page that asked for it closes the connection.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

from fastapi import Body, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from pydantic import BaseModel, ConfigDict
from starlette.exceptions import HTTPException

from regard.errors import InvalidArgument, RegardError, TooLong
from regard.serve.guard import Guard
from regard.serve.session import Session
from regard.serve.there import nobody, while_there
from regard.serve.tiles import routes
from regard.show.html import html
from regard.show.pages import served
from regard.show.payload import Payload
from regard.show.tiles import GivenUp
from regard.words import LANGUAGES, Language, say, set_language

_PAGES = ("view", "explore", "learn")


class Wish(BaseModel):
    """The body of POST /api/record."""

    model_config = ConfigDict(strict=True, extra="forbid")

    text: list[str]
    model: str | None = None
    truncate: bool = False
    lang: Language | None = None
    run: str = ""  # a name by which to ask how far it is


def create_app(session: Session, *, token: str, port: int) -> Guard:
    """The application of one session, behind its guard."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, title="Regard")

    def shown(name: str | None = None) -> Payload:
        found = session.payload(name)
        if found is None:
            raise HTTPException(404, say("serve.recording_gone" if name else "serve.nothing_recorded"))
        return found

    @app.get("/")
    @app.get("/{name}.html")
    def page(name: str = "view") -> HTMLResponse:
        if name not in _PAGES:
            raise HTTPException(404, say("serve.no_such_address"))
        return HTMLResponse(served(name))

    @app.get("/api/recording")
    def recording() -> Response:
        latest = session.payload()
        return Response(status_code=204) if latest is None else JSONResponse(latest.header)

    @app.get("/api/chunks/{index}")
    def chunk(index: int, recording: str | None = None) -> Response:
        chunks = shown(recording).chunks
        if not 0 <= index < len(chunks):
            raise HTTPException(404, say("serve.no_such_chunk", index=index, most=len(chunks) - 1))
        return Response(chunks[index], media_type="application/octet-stream")

    @app.post("/api/record", response_model=None)
    async def record(request: Request, wish: Annotated[Wish, Body()]) -> dict[str, Any] | Response:
        if wish.lang in LANGUAGES:
            set_language(wish.lang)  # of this request: each runs in a context of its own
        options: dict[str, Any] = {"model": wish.model, "truncate": wish.truncate, "run": wish.run}
        try:
            return await while_there(
                request, session.ending, lambda stop: session.record(wish.text, stop=stop, **options)
            )
        except GivenUp:
            return nobody()

    @app.get("/api/progress/{run}")
    def progress(run: str) -> Response:
        known = session.progress(run)
        if known is None:
            return Response(status_code=204)
        return JSONResponse(dict(zip(("what", "done", "total"), known, strict=True)))

    @app.get("/api/models")
    def models() -> list[dict[str, Any]]:
        from regard.serve.models import listing

        return listing()

    @app.get("/api/export")
    def export(recording: str | None = None) -> HTMLResponse:
        data = shown(recording)
        if data.tiled:
            raise TooLong(say("errors.export_too_long"))
        disposition = 'attachment; filename="regard.html"'
        return HTMLResponse(html(data), headers={"content-disposition": disposition})

    app.include_router(routes(session))
    app.add_exception_handler(RegardError, _regard_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _invalid_request)
    app.add_exception_handler(Exception, _unexpected)
    return Guard(app, token=token, port=port)


def _error(status: int, sentence: str, kind: str, details: dict[str, Any] | None = None) -> JSONResponse:
    return JSONResponse({"error": sentence, "kind": kind, **(details or {})}, status)


def _regard_error(_: Request, error: Exception) -> JSONResponse:
    status = 413 if isinstance(error, TooLong) else 422 if isinstance(error, InvalidArgument) else 400
    details: dict[str, Any] = {}
    if isinstance(error, TooLong) and error.limit is not None:
        details = {"tokens": error.tokens, "limit": error.limit}
    return _error(status, str(error), type(error).__name__, details)


def _http_error(_: Request, error: Exception) -> JSONResponse:
    status = getattr(error, "status_code", 404)
    detail = getattr(error, "detail", "")
    if status == HTTPStatus.BAD_REQUEST:  # a body too deep to be parsed
        return _invalid_request(_, error)
    known = detail != HTTPStatus(status).phrase  # the router's own sentence is in English only
    return _error(status, detail if known else say("serve.no_such_address"), "NotFound")


def _invalid_request(_: Request, error: Exception) -> JSONResponse:
    return _error(422, say("serve.invalid_request"), "InvalidArgument")


def _unexpected(_: Request, error: Exception) -> JSONResponse:
    """A fault of ours: the page hears its kind, and the server's log (the terminal) gets the traceback."""
    return _error(500, say("serve.unexpected", kind=type(error).__name__), "Unexpected")
