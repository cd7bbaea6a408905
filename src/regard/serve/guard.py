"""Who may talk to the local server, and how much: checked before any of the application runs.

A page on the web can make a browser send requests to 127.0.0.1, or point a name of its own there (DNS
rebinding). So: the Host header must be this server's own address, every request needs the access token (from
the link once, then from a cookie that scripts cannot read and other sites cannot send), a POST must come from
this server's own page, and bodies are limited. Every answer carries headers that forbid the page to talk to
anyone else.

Reference: OWASP, Cross-Site Request Forgery Prevention and HTTP Headers cheat sheets.
"""

from __future__ import annotations

import json
import secrets
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from regard.words import say

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY_BYTES = 1 << 20
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; "
    "font-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class Guard:
    """ASGI middleware around the application of one server, which listens on `port` of this machine only."""

    def __init__(self, app: ASGIApp, *, token: str, port: int) -> None:
        self.app = app
        self.token = token
        self.hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
        # Browsers share cookies between the ports of a host: each server needs a name of its own.
        self.cookie = f"regard_{port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # a web socket: not spoken here
            await send({"type": "websocket.close", "code": 1008})
            return
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]
        }
        in_link = self._token_in_link(scope)

        async def guarded_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                extra = dict(HEADERS)
                if in_link:
                    extra["set-cookie"] = f"{self.cookie}={self.token}; Path=/; HttpOnly; SameSite=Strict"
                message = {**message, "headers": [*message["headers"], *_encoded(extra)]}
            await send(message)

        refused = self._refusal(scope, headers, in_link)
        if refused:
            await _answer(guarded_send, 403, say(refused), "Forbidden")
            return
        body = await _body(receive, headers)
        if body is None:
            await _answer(guarded_send, 413, say("serve.body_too_large"), "TooLong")
            return
        await self.app(scope, _replay(body, receive), guarded_send)

    def _refusal(self, scope: Scope, headers: dict[str, str], in_link: bool) -> str | None:
        """The word for why a request is refused, or None."""
        if headers.get("host", "") not in self.hosts:
            return "serve.foreign_host"
        if not in_link and not self._token_in_cookie(headers.get("cookie", "")):
            return "serve.no_token"
        if scope["method"] not in ("GET", "HEAD"):
            # Browsers name the page that sends. What is no browser names none, and has shown the token.
            if headers.get("origin", f"http://{headers['host']}") != f"http://{headers['host']}":
                return "serve.foreign_origin"
            if headers.get("sec-fetch-site", "same-origin") != "same-origin":
                return "serve.foreign_origin"
        return None

    def _token_in_link(self, scope: Scope) -> bool:
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])
        return secrets.compare_digest(given[0].encode(), self.token.encode())

    def _token_in_cookie(self, header: str) -> bool:
        try:
            cookies = SimpleCookie(header)
        except CookieError:
            return False
        given = cookies[self.cookie].value if self.cookie in cookies else ""
        return secrets.compare_digest(given.encode(), self.token.encode())


async def _body(receive: Receive, headers: dict[str, str]) -> bytes | None:
    """The whole body, or None as soon as it is longer than allowed, whatever its announced length."""
    announced = headers.get("content-length", "0")
    if not announced.isdecimal() or int(announced) > MAX_BODY_BYTES:
        return None
    body: bytes = b""
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return body
        body += message.get("body", b"")
        if len(body) > MAX_BODY_BYTES:
            return None
        if not message.get("more_body", False):
            return body


def _replay(body: bytes, receive: Receive) -> Receive:
    """A `receive` that hands out the body already read, then whatever follows (a disconnect)."""
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> Message:
        return pending.pop() if pending else await receive()

    return replayed


async def _answer(send: Send, status: int, sentence: str, kind: str) -> None:
    content = json.dumps({"error": sentence, "kind": kind}, ensure_ascii=False).encode()
    headers = {"content-type": "application/json", "content-length": str(len(content))}
    await send({"type": "http.response.start", "status": status, "headers": _encoded(headers)})
    await send({"type": "http.response.body", "body": content})


def _encoded(headers: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
