"""Work for a page runs in a thread, and is given up when the page has left: closed, gone on, or told to stop.

A page that calls off a request closes its connection. That is all the message there is: whoever works looks
from time to time at `stop()`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

from fastapi import Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from regard.show.tiles import GivenUp, Stop

T = TypeVar("T")
_LOOK = 0.1  # seconds between two looks at whether the page is still there


async def while_there(request: Request, ending: threading.Event, work: Callable[[Stop], T]) -> T:
    """What `work` gives, computed in a thread; it is told to stop when the client leaves.

    Raises GivenUp at once when the server is `ending`, and does not wait for the work to notice.
    """
    gone = threading.Event()
    task = asyncio.ensure_future(run_in_threadpool(work, gone.is_set))
    task.add_done_callback(lambda done: done.cancelled() or done.exception())  # whoever left does not ask
    try:
        while not (await asyncio.wait({task}, timeout=_LOOK))[0]:
            if ending.is_set():
                raise GivenUp
            if await request.is_disconnected():
                gone.set()
        return task.result()
    finally:
        gone.set()


def nobody() -> Response:
    """The answer to a client that has left."""
    return Response(status_code=499)
