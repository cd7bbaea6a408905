"""What the page asks of the application, and what it hears."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from starlette.testclient import TestClient

import regard
from by_hand import small_recording
from regard.serve.session import KEPT, Session
from regard.show.payload import decode


def test_the_page_is_the_built_front_end_and_only_built_pages_are_served(client: TestClient) -> None:
    assert client.get("/").headers["content-type"] == "text/html; charset=utf-8"
    assert 'id="regard-data"' in client.get("/").text
    assert client.get("/explore.html").status_code == 200
    for address in ("/", "/view.html", "/explore.html", "/learn.html"):
        assert '<html lang="en" data-served>' in client.get(address).text
    assert "data-served" not in client.get("/api/export").text[:1000]
    for path in ("/secrets.html", "/..%2fpayload.html", "/static/view.html"):
        response = client.get(path)
        assert response.status_code == 404
        assert response.json() == {"error": "There is nothing at this address.", "kind": "NotFound"}


def test_header_and_chunks_are_the_recording(client: TestClient) -> None:
    header = client.get("/api/recording").json()
    recording = small_recording()
    for index, site in enumerate(header["sites"]):
        response = client.get(f"/api/chunks/{index}?recording={header['id']}")
        assert response.headers["content-type"] == "application/octet-stream"
        shown = decode(response.content, site["heads"], 7, 7)
        assert float((shown - recording.weights(layer=site["layer"])).abs().max()) <= 0.002


def test_a_chunk_that_is_not_there_is_named(client: TestClient) -> None:
    response = client.get("/api/chunks/2")
    assert response.status_code == 404
    assert response.json()["error"] == "There is no part 2 in this recording; the last is 1."
    assert client.get("/api/chunks/x").status_code == 422


def test_a_server_without_a_recording_says_so_without_an_error(connect: Callable[..., TestClient]) -> None:
    client = connect(session=Session())
    assert client.get("/api/recording").status_code == 204
    assert client.get("/api/chunks/0").json()["error"] == "Nothing has been recorded yet."


def test_another_text_replaces_the_recording(client: TestClient, loads: list[str]) -> None:
    response = client.post("/api/record", json={"text": ["one two three", "four"], "model": "minilm"})
    assert response.status_code == 200
    assert response.json()["sequences"]["text"]["tokens"] == ["one", "two", "three", "four"]
    assert client.get("/api/recording").json() == response.json()
    assert loads == ["minilm"]


def test_a_model_stays_loaded_until_another_is_asked_for(client: TestClient, loads: list[str]) -> None:
    for model in ("minilm", "minilm", None, "other", "other", "minilm"):
        assert client.post("/api/record", json={"text": ["a b"], "model": model}).status_code == 200
    assert loads == ["minilm", "other", "minilm"]


def test_what_fails_says_why_and_keeps_the_old_recording(client: TestClient) -> None:
    before = client.get("/api/recording").json()
    long = "word " * 60
    cases = [
        ({"text": [long]}, 413, "TooLong", "The text has 60 tokens; the model takes 50."),
        ({"text": ["a"], "model": "nowhere"}, 400, "UnknownModel", "There is no model nowhere."),
        ({"text": []}, 422, "InvalidArgument", "Give one text, or two for a pair; got 0."),
        ({"text": ["a", "b", "c"]}, 422, "InvalidArgument", "Give one text, or two for a pair; got 3."),
        ({"text": ["x" * 200_001]}, 422, "InvalidArgument", "A text may have at most 200000 characters"),
        ({"text": "a"}, 422, "InvalidArgument", "The request must be JSON such as"),
        ({"text": ["a"], "other": 1}, 422, "InvalidArgument", "The request must be JSON such as"),
        ({"text": ["fault"]}, 500, "Unexpected", "Something failed that should not (ZeroDivisionError)"),
    ]
    for body, status, kind, sentence in cases:
        response = client.post("/api/record", json=body)
        assert (response.status_code, response.json()["kind"]) == (status, kind), body
        assert response.json()["error"].startswith(sentence)
        assert "Traceback" not in response.text
        assert client.get("/api/recording").json() == before
    deep = client.post("/api/record", content="[" * 100_000, headers={"content-type": "application/json"})
    assert (deep.status_code, deep.json()["kind"]) == (422, "InvalidArgument")
    assert deep.json()["error"].startswith("The request must be JSON such as")
    assert client.post("/api/record", json={"text": [long], "truncate": True}).status_code == 200


def test_a_recording_too_large_for_a_page_has_tiles_and_no_export(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regard.show.payload.MAX_WEIGHTS", 10)
    header = client.post("/api/record", json={"text": ["a b c d"]}).json()
    assert [site["tiled"] for site in header["sites"]] == [True, True]
    assert client.get("/api/tiles/1/2/0/0/0").status_code == 200
    refused = client.get(f"/api/export?recording={header['id']}")
    assert (refused.status_code, refused.json()["kind"]) == (413, "TooLong")
    assert "regard record" in refused.json()["error"]


def test_a_text_that_is_too_long_is_counted_for_the_page(client: TestClient) -> None:
    answer = client.post("/api/record", json={"text": ["word " * 60]}).json()
    assert (answer["tokens"], answer["limit"]) == (60, 50)


def test_errors_come_in_the_language_of_the_page(client: TestClient) -> None:
    said = client.post("/api/record", json={"text": [], "lang": "fr"}).json()["error"]
    assert said == "Donnez un texte, ou deux pour une paire ; reçu : 0."
    assert client.post("/api/record", json={"text": []}).json()["error"].startswith("Give one text")


def test_a_page_opened_earlier_never_gets_the_numbers_of_a_newer_recording(client: TestClient) -> None:
    old = client.get("/api/recording").json()
    old_chunk = client.get(f"/api/chunks/0?recording={old['id']}").content
    for _ in range(KEPT - 1):
        client.post("/api/record", json={"text": ["a b c"]})
    assert client.get(f"/api/chunks/0?recording={old['id']}").content == old_chunk
    client.post("/api/record", json={"text": ["a b c"]})
    response = client.get(f"/api/chunks/0?recording={old['id']}")
    assert response.status_code == 404
    assert "Reload the page" in response.json()["error"]


def test_models_are_listed_with_size_licence_and_sources(client: TestClient) -> None:
    minilm = next(model for model in client.get("/api/models").json() if model["name"] == "minilm")
    assert minilm["licence"] == "Apache-2.0"
    assert minilm["size_bytes"] > 90e6
    assert minilm["sources"]
    assert isinstance(minilm["here"], bool)


def test_the_export_is_the_file_that_python_writes(client: TestClient) -> None:
    response = client.get("/api/export")
    assert response.headers["content-disposition"] == 'attachment; filename="regard.html"'
    assert "connect-src 'none'" in response.text
    assert '"kind":"recording"' in response.text


def test_one_model_runs_at_a_time(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    running, most = 0, 0

    def slow(*_: object, **__: object) -> object:
        nonlocal running, most
        running += 1
        most = max(most, running)
        time.sleep(0.02)
        running -= 1
        return small_recording()

    monkeypatch.setattr(regard, "record", slow)
    threads = [threading.Thread(target=session.record, args=(["a"],)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
