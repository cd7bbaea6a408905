"""Nobody but the page that the link opened can talk to the server, and not without end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from here import HOME, PORT, TOKEN
from regard.serve.guard import MAX_BODY_BYTES

Connect = Callable[..., TestClient]
RECORD = {"text": ["a b c"]}


def refused(response: Any, status: int, kind: str) -> bool:
    body = response.json()
    assert set(body) == {"error", "kind"}
    assert "\n" not in body["error"]
    return bool(response.status_code == status and body["kind"] == kind)


def test_without_the_token_nothing_is_served(connect: Connect) -> None:
    client = connect(link=False)
    paths = [
        "",
        "api/recording",
        "api/chunks/0",
        "api/models",
        "api/export",
        "nowhere",
        "?token=",
        "?token=x",
    ]
    for path in (f"/{path}" for path in paths):
        assert refused(client.get(path), 403, "Forbidden"), path
    assert refused(client.post("/api/record", json=RECORD), 403, "Forbidden")
    assert not client.cookies


def test_the_link_gives_a_cookie_that_scripts_and_other_sites_cannot_use(connect: Connect) -> None:
    client = connect(link=False)
    cookie = client.get(f"/?token={TOKEN}").headers["set-cookie"]
    assert cookie == f"regard_{PORT}={TOKEN}; Path=/; HttpOnly; SameSite=Strict"
    assert client.get("/api/recording").status_code == 200


def test_a_cookie_of_another_server_or_a_damaged_one_is_refused(connect: Connect) -> None:
    client = connect(link=False)
    for cookie in (f"regard_1={TOKEN}", f"regard_{PORT}=x", f"regard_{PORT}", "\x7f;=;", f"regard_{PORT}=é"):
        response = client.get("/api/recording", headers={"cookie": cookie.encode("latin-1")})
        assert refused(response, 403, "Forbidden"), cookie


@pytest.mark.parametrize(
    "host", ["evil.example", f"evil.example:{PORT}", "127.0.0.1", f"127.0.0.1:{PORT + 1}", ""]
)
def test_a_foreign_host_header_is_refused_even_with_the_token(client: TestClient, host: str) -> None:
    assert refused(client.get("/api/recording", headers={"host": host}), 403, "Forbidden")


def test_localhost_is_the_same_server(client: TestClient) -> None:
    headers = {"host": f"localhost:{PORT}", "cookie": f"regard_{PORT}={TOKEN}"}
    response = client.get("/api/recording", headers=headers)
    assert response.status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": f"http://127.0.0.1:{PORT + 1}"},
        {"origin": f"http://localhost:{PORT}"},
        {"origin": HOME, "sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_a_post_from_another_page_is_refused(client: TestClient, headers: dict[str, str]) -> None:
    assert refused(client.post("/api/record", json=RECORD, headers=headers), 403, "Forbidden")


def test_a_post_from_the_page_itself_is_served(client: TestClient) -> None:
    headers = {"origin": HOME, "sec-fetch-site": "same-origin"}
    assert client.post("/api/record", json=RECORD, headers=headers).status_code == 200


def test_a_body_over_the_limit_is_refused_whether_announced_or_not(client: TestClient) -> None:
    large = b"x" * (MAX_BODY_BYTES + 1)
    assert refused(client.post("/api/record", content=large), 413, "TooLong")

    def pieces() -> Iterator[bytes]:
        for _ in range(40):
            yield large[: MAX_BODY_BYTES // 32]

    assert refused(client.post("/api/record", content=pieces()), 413, "TooLong")
    assert refused(client.post("/api/record", content=b"", headers={"content-length": "-1"}), 413, "TooLong")


def test_every_answer_forbids_the_page_to_talk_to_anyone_else(client: TestClient) -> None:
    answers = [client.get(path) for path in ("/", "/api/recording", "/nowhere")]
    answers.append(client.get("/", headers={"host": "evil.example"}))
    for response in answers:
        policy = response.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "connect-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "http" not in policy
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["referrer-policy"] == "no-referrer"
        assert response.headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in response.headers


def test_interfaces_that_load_scripts_from_elsewhere_are_not_there(client: TestClient) -> None:
    for path in ("/docs", "/redoc", "/openapi.json"):
        assert client.get(path).status_code == 404


def test_a_websocket_is_not_accepted(client: TestClient) -> None:
    with pytest.raises(WebSocketDisconnect) as closed, client.websocket_connect("/"):
        pytest.fail("connected")
    assert closed.value.code == 1008
