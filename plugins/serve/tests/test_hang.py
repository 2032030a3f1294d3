"""An engine that stands still is told from one that has much to do."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from mlxfill.testing import Guest

if TYPE_CHECKING:
    from collections.abc import Callable

    import mlxfill

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
BODY = {"messages": [{"role": "user", "content": "Where is send_key used?"}], "max_tokens": 6}


def processed_by(processor: Callable[[Any, Any], Any], load_tiny: Any) -> Any:
    """How to load an engine whose every token goes through ``processor``."""

    def loading() -> mlxfill.Engine:
        engine: mlxfill.Engine = load_tiny()
        engine.plugins._switch_on("guest", Guest(processors=[processor]), None)
        return engine

    return loading


def until(condition: Callable[[], Any], seconds: float = 20) -> bool:
    """Whether it came true in time."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return bool(condition())


def test_an_engine_that_hangs_is_told_and_one_that_goes_on_serves_again(
    load_tiny: Any, serve_tiny: Any
) -> None:
    hangs, go_on = threading.Event(), threading.Event()

    def stuck(_: Any, logits: Any) -> Any:
        if hangs.is_set():
            go_on.wait(60)
        return logits

    with (
        serve_tiny(processed_by(stuck, load_tiny), hang=1) as served,
        served.http() as http,
        ThreadPoolExecutor(2) as pool,
    ):
        try:
            expected = http.post(CHAT, json=BODY).json()["choices"]
            time.sleep(1.2)  # without work it may stand still
            assert http.get("/health").json()["engine"] == "alive"
            hangs.set()
            whole = pool.submit(http.post, CHAT, json=BODY)
            stream = pool.submit(http.post, CHAT, json={**BODY, "stream": True})
            assert until(lambda: http.get("/health").status_code == 503)
            told = http.get("/health").json()
            assert (told["status"], told["engine"]) == ("unavailable", "hung")
            assert "mlxfill_engine_alive 0.0" in http.get("/metrics").text
            refused = http.post(CHAT, json=BODY)
            assert refused.status_code == 503
            assert refused.json()["error"]["code"] == "engine_hung"
            assert int(refused.headers["retry-after"]) > 0
            assert whole.result().status_code == 503
            assert '"engine_hung"' in stream.result().text
        finally:
            hangs.clear()
            go_on.set()
        assert until(lambda: http.get("/health").status_code == 200)
        assert http.post(CHAT, json=BODY).json()["choices"] == expected
        assert served.idle()


def test_a_long_prompt_is_work(load_tiny: Any, serve_tiny: Any) -> None:
    def loading() -> mlxfill.Engine:
        engine: mlxfill.Engine = load_tiny(
            config={"gate": {"enabled": False}, "generation": {"prefill_step_size": 16}}
        )
        forward = engine.target.forward

        def slow(*args: Any, **options: Any) -> Any:
            time.sleep(0.1)
            return forward(*args, **options)

        vars(engine.target)["forward"] = slow
        return engine

    with serve_tiny(loading, hang=1.5) as served, served.http() as http:
        moments: list[int] = []
        with ThreadPoolExecutor(1) as pool:
            begun = time.monotonic()
            asked = pool.submit(http.post, TEXT, json={"prompt": "a b c " * 100, "max_tokens": 2})
            while not asked.done():
                moments.append(http.get("/health").status_code)
                time.sleep(0.05)
        assert asked.result().status_code == 200
        assert time.monotonic() - begun > 1.5
        assert set(moments) == {200}


def test_others_are_answered_while_a_request_is_read(load_tiny: Any, serve_tiny: Any) -> None:
    reads, go_on = threading.Event(), threading.Event()

    def loading() -> mlxfill.Engine:
        engine: mlxfill.Engine = load_tiny()
        check = engine.check

        def slow(prompt: Any, **options: Any) -> Any:
            if options.get("schema"):
                reads.set()
                go_on.wait(60)
            return check(prompt, **options)

        vars(engine)["check"] = slow
        return engine

    go_on.set()
    with serve_tiny(loading, rows=1, queue=1) as served, served.http() as http:
        go_on.clear()
        reads.clear()
        with ThreadPoolExecutor(1) as pool:
            heavy = {**BODY, "max_tokens": 40, "response_format": {"type": "json_object"}}
            asked = pool.submit(http.post, CHAT, json=heavy)
            assert reads.wait(10)
            assert http.post(CHAT, json=BODY).status_code == 200
            assert served.worker.outstanding == 1  # what is read has its place in the queue
            assert http.get("/health").json()["engine"] == "alive"
            go_on.set()
        assert asked.result().status_code == 200
        assert served.idle()


def test_the_vocabulary_is_read_before_anyone_is_served(load_tiny: Any, serve_tiny: Any) -> None:
    asked: list[tuple[str, object]] = []

    def loading() -> mlxfill.Engine:
        engine: mlxfill.Engine = load_tiny()
        check = engine.check

        def noted(prompt: Any, **options: Any) -> Any:
            asked.append((threading.current_thread().name, options.get("schema")))
            return check(prompt, **options)

        vars(engine)["check"] = noted
        return engine

    with serve_tiny(loading) as served, served.http() as http:
        ((thread, schema),) = asked
        assert thread == "mlxfill-engine"
        assert schema
        assert http.get("/health").status_code == 200
