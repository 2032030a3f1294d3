"""What the operator bounds, and what happens when a client or the engine goes away."""

from __future__ import annotations

import json
import re
import socket
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from mlxfill_serve import ServeSettings
from mlxfill_testing import Guest

if TYPE_CHECKING:
    import httpx

    import mlxfill

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
HELLO = [{"role": "user", "content": "Where is send_key used?"}]
LONG = {"messages": HELLO, "max_tokens": 20_000, "logit_bias": {}, "temperature": 2.0, "seed": 1}


def endless(served: Any) -> dict[str, Any]:
    """A request that runs until its row is taken away: no token may end it."""
    assert served.worker.engine is not None
    ends = served.worker.engine.tokenizer.eos_token_ids
    return {**LONG, "logit_bias": {str(token): -1000.0 for token in ends}}


def error_of(response: httpx.Response) -> dict[str, Any]:
    error: dict[str, Any] = response.json()["error"]
    return error


# --- clients that hang up -----------------------------------------------------------------


def test_a_client_that_hangs_up_frees_its_row(served: Any) -> None:
    body = {**endless(served), "stream": True}
    with served.http() as http, http.stream("POST", CHAT, json=body) as response:
        lines = response.iter_lines()
        assert next(lines).startswith("data: ")
        assert served.worker.outstanding == 1
    assert served.idle()
    with served.http() as http:  # and the server goes on
        assert http.post(CHAT, json={"messages": HELLO, "max_tokens": 2}).status_code == 200


def test_a_client_that_waits_for_the_whole_and_hangs_up_frees_its_row_too(served: Any) -> None:
    body = json.dumps(endless(served)).encode()
    host, port = served.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as sock:
        head = f"POST {CHAT} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n\r\n"
        sock.sendall(head.encode() + body)
        assert served.until(lambda: served.worker.outstanding == 1)
    assert served.idle()


def test_a_client_that_hangs_up_before_its_request_is_whole_is_no_fault(served: Any) -> None:
    host, port = served.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as sock:
        sock.sendall(
            f"POST {CHAT} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 9\r\n\r\n{{".encode()
        )
    gone = f'path="{CHAT}",status="499"'
    with served.http() as http:
        assert served.until(lambda: gone in http.get("/metrics").text)
        assert 'status="500"' not in http.get("/metrics").text


# --- bounds -------------------------------------------------------------------------------


def test_more_than_the_queue_holds_is_told_to_come_again(serve_tiny: Any) -> None:
    with serve_tiny(rows=1, queue=1) as served, ThreadPoolExecutor(2) as pool:
        long = {**endless(served), "max_tokens": 400}
        with served.http() as http:
            running = [pool.submit(http.post, CHAT, json=long) for _ in range(2)]
            assert served.until(lambda: served.worker.outstanding == 2)
            refused = http.post(CHAT, json=long)
            assert refused.status_code == 429
            assert int(refused.headers["retry-after"]) >= 1
            assert error_of(refused)["code"] == "queue_full"
            assert [each.result().status_code for each in running] == [200, 200]
            assert http.post(CHAT, json={**long, "max_tokens": 2}).status_code == 200


def test_a_request_that_takes_too_long_is_ended_and_its_row_freed(serve_tiny: Any) -> None:
    with serve_tiny(timeout=100, hang=0, clock=count().__next__) as served, served.http() as http:
        whole = http.post(CHAT, json=endless(served))
        assert whole.status_code == 504
        assert error_of(whole)["code"] == "timeout"
        assert served.idle()
        streamed = http.post(CHAT, json={**endless(served), "stream": True}).text
        last = streamed.strip().split("\n\n")[-1]
        assert json.loads(last.removeprefix("data: "))["error"]["code"] == "timeout"
        assert served.idle()


def test_a_body_that_does_not_arrive_is_not_waited_for(serve_tiny: Any) -> None:
    with serve_tiny(timeout=0.3) as served:
        host, port = served.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as sock:
            head = f"POST {CHAT} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 9\r\n\r\n"
            sock.sendall(head.encode() + b"{")
            answer = b""
            while chunk := sock.recv(1000):
                answer += chunk
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"did not arrive within 0.3 s" in answer


def test_the_operator_bounds_the_tokens_of_a_request(serve_tiny: Any) -> None:
    with serve_tiny(max_tokens=7) as served, served.http() as http:
        lengths: list[Any] = [8, 128_000, 2**31 - 1, -1]
        asked: list[tuple[dict[str, Any], int]] = [({}, 7), ({"max_tokens": 5}, 5)]
        for name in ("max_tokens", "max_completion_tokens", "n_predict"):
            asked += [({name: length}, 7) for length in lengths]
        asked += [({"n": 2}, 6), ({"n": 2, "max_tokens": 1}, 2), ({"n": 2, "max_tokens": -1}, 6)]
        for body, expected in asked:
            told = http.post(CHAT, json={"messages": HELLO, **body}).json()
            assert told["usage"]["completion_tokens"] == expected, body
            assert {choice["finish_reason"] for choice in told["choices"]} == {"length"}
        response = {"input": HELLO, "max_output_tokens": 128_000}
        told = http.post("/v1/responses", json=response).json()
        assert (told["usage"]["output_tokens"], told["status"]) == (7, "incomplete")
        several = {"prompt": ["a", "b", "c"], "max_tokens": -1}
        assert http.post(TEXT, json=several).json()["usage"]["completion_tokens"] == 6
        for body in ({"prompt": "a", "n": 8}, {"prompt": ["a"] * 4, "n": 2}):
            refused = http.post(TEXT, json=body)
            assert refused.status_code == 400
            said = "the request asks for 8 replies; all together may have 7 tokens"
            assert error_of(refused)["message"] == said


@pytest.mark.parametrize("length", [2**31, 2**63, 10**40, -2, -(2**31), 1.0, 5.5, True, "5"])
@pytest.mark.parametrize(
    ("path", "name"),
    [
        (CHAT, "max_tokens"),
        (CHAT, "max_completion_tokens"),
        (TEXT, "max_tokens"),
        ("/v1/responses", "max_output_tokens"),
    ],
)
def test_what_is_no_length_is_refused(served: Any, path: str, name: str, length: object) -> None:
    bodies: dict[str, Any] = {CHAT: {"messages": HELLO}, TEXT: {"prompt": "a"}}
    with served.http() as http:
        refused = http.post(path, json={**bodies.get(path, {"input": HELLO}), name: length})
    assert refused.status_code == 400
    assert error_of(refused)["param"] == name


def test_no_reply_is_longer_than_the_default_allows() -> None:
    assert 0 < ServeSettings().max_tokens <= 32_768


def test_a_reply_ends_where_the_context_does(load_tiny: Any, serve_tiny: Any) -> None:
    def loading() -> mlxfill.Engine:
        engine: mlxfill.Engine = load_tiny()
        engine.context = 40
        return engine

    with serve_tiny(loading) as served, served.http() as http:
        for wanted in (-1, 1000):
            body = {**endless(served), "max_tokens": wanted}
            answer = http.post(CHAT, json=body).json()
            assert answer["usage"]["total_tokens"] == 40
            assert answer["choices"][0]["finish_reason"] == "length"


# --- who may ask --------------------------------------------------------------------------


def test_a_key_is_needed_where_one_is_set(serve_tiny: Any) -> None:
    with serve_tiny(api_key="open sesame") as served, served.http() as http:
        for headers in ({}, {"Authorization": "Bearer open"}, {"Authorization": "open sesame"}):
            for path in ("/v1/models", "/metrics"):
                refused = http.get(path, headers=headers)
                assert refused.status_code == 401
                assert refused.headers["www-authenticate"] == "Bearer"
            refused = http.post(CHAT, json={"messages": HELLO}, headers=headers)
            assert error_of(refused)["type"] == "authentication_error"
        assert http.get("/health").status_code == 200
        assert http.get("/").status_code == 200
        with served.sdk("open sesame") as client:
            assert [model.id for model in client.models.list()] == ["tiny"]


def test_pages_of_other_sites_may_not_ask(served: Any) -> None:
    with served.http() as http:
        for origin in ("https://evil.example", "null", "http://127.0.0.1:1", "http://[::1"):
            refused = http.post(CHAT, json={"messages": HELLO}, headers={"Origin": origin})
            assert refused.status_code == 403
            assert error_of(refused)["code"] == "origin_not_allowed"
        own = {"Origin": served.url}
        assert http.get("/v1/models", headers=own).status_code == 200


def test_another_name_for_this_machine_is_refused(served: Any) -> None:
    with served.http() as http:
        refused = http.get("/v1/models", headers={"Host": "rebound.example"})
        assert refused.status_code == 403
        assert error_of(refused)["code"] == "host_not_allowed"
        assert http.get("/v1/models", headers={"Host": "localhost"}).status_code == 200


def test_an_allowed_origin_may_ask_and_read(serve_tiny: Any) -> None:
    pages = ("https://chat.example", "http://[::1]:3000", "app://obsidian.md", "null")
    allowing: Any = {"origins": pages, "api_key": "clé"}
    with serve_tiny(**allowing) as served, served.http() as http:
        headers = {"Origin": "https://chat.example"}
        asked = {"Method": "POST", "Headers": "authorization, content-type, x-stainless-lang"}
        asking = {f"Access-Control-Request-{name}": value for name, value in asked.items()}
        assert http.options(CHAT, headers={**headers, **asking}).status_code == 200
        keys = [{"Authorization": "Bearer clé".encode(way)} for way in ("utf-8", "latin-1")]
        for more, status in (({}, 401), *((key, 200) for key in keys)):
            answer = http.get("/v1/models", headers={**headers, **more})
            assert answer.status_code == status
            assert answer.headers["access-control-allow-origin"] == "https://chat.example"
        other = http.get("/v1/models", headers={"Origin": "https://other.example"})
        assert other.status_code == 403


def test_the_page_takes_nothing_from_elsewhere(served: Any) -> None:
    with served.http() as http:
        page = http.get("/")
    assert page.headers["content-type"].startswith("text/html")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert "https:" not in page.text


def test_the_libraries_of_the_page_come_with_their_licences(served: Any) -> None:
    with served.http() as http:
        table = http.get("/vendor/README.md").text
        libraries = re.findall(r"^\| `([^`]+)`", table, re.MULTILINE)
        licences = re.findall(r"\((licences/[^)]+)\)", table)
        assert (len(libraries), len(licences)) == (3, 8)
        files = [http.get(f"/vendor/{name}") for name in (*libraries, *licences)]
    assert all(file.status_code == 200 for file in files)
    assert all("javascript" in file.headers["content-type"] for file in files[:3])
    assert sum(len(file.content) for file in files) < 500_000


# --- the engine dies ----------------------------------------------------------------------


class Death(BaseException):
    """What nobody catches."""


def test_when_the_engine_dies_everyone_is_told(load_tiny: Any, serve_tiny: Any) -> None:
    def doomed_engine() -> mlxfill.Engine:
        engine: mlxfill.Engine = load_tiny()
        stream, opened = engine.stream, []

        def dying(*args: Any, **options: Any) -> Any:
            opened.append(1)
            if len(opened) > 3:
                raise Death
            return stream(*args, **options)

        vars(engine)["stream"] = dying
        return engine

    with serve_tiny(doomed_engine) as served, served.http() as http, ThreadPoolExecutor(3) as pool:
        assert http.get("/health").status_code == 200
        long = endless(served)
        waiting = [pool.submit(http.post, CHAT, json=long) for _ in range(2)]
        stream = pool.submit(http.post, CHAT, json={**long, "stream": True})
        assert served.until(lambda: served.worker.outstanding == 3)
        assert http.post(CHAT, json=long).status_code == 503  # the one that kills
        assert [each.result().status_code for each in waiting] == [503, 503]
        assert '"engine_dead"' in stream.result().text
        health = http.get("/health")
        assert (health.status_code, health.json()["status"]) == (503, "unavailable")
        refused = http.post(CHAT, json=long)
        assert refused.status_code == 503
        assert error_of(refused)["code"] == "engine_dead"
        assert "mlxfill_engine_alive 0.0" in http.get("/metrics").text


def test_one_request_that_fails_leaves_the_others_alone(load_tiny: Any, serve_tiny: Any) -> None:
    failures = iter([True])

    def once(_: Any, logits: Any) -> Any:
        if next(failures, False):
            raise ValueError("a processor failed")
        return logits

    def loading() -> mlxfill.Engine:
        engine: mlxfill.Engine = load_tiny()
        engine.plugins._switch_on("guest", Guest(processors=[once]), None)
        return engine

    with serve_tiny(loading) as served, served.http() as http:
        failed = http.post(CHAT, json={"messages": HELLO, "max_tokens": 4})
        assert failed.status_code == 500
        assert "a processor failed" in error_of(failed)["message"]
        assert http.post(CHAT, json={"messages": HELLO, "max_tokens": 4}).status_code == 200
        assert http.get("/health").status_code == 200


# --- what Prometheus is told --------------------------------------------------------------


def test_requests_are_counted_by_the_paths_that_there_are(serve_tiny: Any) -> None:
    key = {"Authorization": "Bearer secret"}
    with serve_tiny(api_key="secret") as served, served.http() as http:
        http.get("/health")
        http.post(CHAT, json={"messages": HELLO})
        http.get("/v1/models/none")
        for name in ("none", "others"):
            http.get(f"/v1/models/{name}", headers=key)
            http.get(f"/v1/{name}", headers=key)
        http.post(CHAT, json={"messages": HELLO, "max_tokens": 1}, headers=key)
        told = http.get("/metrics", headers=key).text
    for path, status, number in (
        (CHAT, 401, 1),
        (CHAT, 200, 1),
        ("/v1/models/{name:path}", 401, 1),
        ("/v1/models/{name:path}", 404, 2),
        ("other", 404, 2),
        ("/health", 200, 1),
    ):
        assert f'mlxfill_requests_total{{path="{path}",status="{status}"}} {number}.0' in told
    for what in ("first_byte", "request"):
        assert f'mlxfill_{what}_seconds_count{{path="{CHAT}"}} 2.0' in told
        assert f'mlxfill_{what}_seconds_count{{path="/health"}}' not in told
