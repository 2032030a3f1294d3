"""An engine that stands still is told from one that has much to do."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from mlxfill_testing import Guest
from patience import AT_ALL

if TYPE_CHECKING:
    from collections.abc import Callable

    import mlxfill

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
BODY = {"messages": [{"role": "user", "content": "Where is send_key used?"}], "max_tokens": 6}


class Clock:
    """Goes on when a test says so."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def processed_by(processor: Callable[[Any, Any], Any], load_tiny: Any) -> Any:
    """How to load an engine whose every token goes through ``processor``."""

    def loading() -> mlxfill.Engine:
        engine: mlxfill.Engine = load_tiny()
        engine.plugins._switch_on("guest", Guest(processors=[processor]), None)
        return engine

    return loading


def test_an_engine_that_hangs_is_told_and_one_that_goes_on_serves_again(
    load_tiny: Any, serve_tiny: Any
) -> None:
    hangs, stands, go_on = threading.Event(), threading.Event(), threading.Event()
    clock = Clock()

    def stuck(_: Any, logits: Any) -> Any:
        if hangs.is_set():
            stands.set()
            go_on.wait()
        return logits

    with (
        serve_tiny(processed_by(stuck, load_tiny), clock=clock, hang=1) as served,
        served.http() as http,
        ThreadPoolExecutor(2) as pool,
    ):
        try:
            expected = http.post(CHAT, json=BODY).json()["choices"]
            assert served.idle()
            clock.now += 5  # without work it may stand still
            assert http.get("/health").json()["engine"] == "alive"
            hangs.set()
            whole = pool.submit(http.post, CHAT, json=BODY)
            stream = pool.submit(http.post, CHAT, json={**BODY, "stream": True})
            assert stands.wait(AT_ALL)
            assert http.get("/health").status_code == 200
            clock.now += 1.1
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
        assert served.until(lambda: http.get("/health").status_code == 200)
        assert http.post(CHAT, json=BODY).json()["choices"] == expected
        assert served.idle()


class SlowLayers(Clock):
    """Goes on by 15 seconds whenever the engine's thread looks at it: at each layer at least."""

    worker: Any = None
    engine_thread = 0

    def __init__(self) -> None:
        self.hung: list[bool] = []
        self._looks = False

    def __call__(self) -> float:
        if self.worker is None or threading.get_ident() != self.engine_thread or self._looks:
            return self.now
        self.now += 15
        self._looks = True
        self.hung.append(self.worker.hung)
        self._looks = False
        return self.now


def test_a_slow_layer_of_a_long_prompt_is_work(
    load_tiny: Any, serve_tiny: Any, plain: mlxfill.Engine
) -> None:
    clock = SlowLayers()

    def loading() -> mlxfill.Engine:
        clock.engine_thread = threading.get_ident()
        engine: mlxfill.Engine = load_tiny()
        return engine

    with serve_tiny(loading, clock=clock, hang=60) as running, running.http() as http:
        clock.worker = running.worker
        asked = http.post(TEXT, json={"prompt": "a b c " * 100, "max_tokens": 2})
        assert asked.status_code == 200
        assert http.get("/health").status_code == 200
    expected = plain.generate("a b c " * 100, max_tokens=2)
    assert clock.now > 60  # as one chunk it would have been taken for a hang
    assert set(clock.hung) == {False}
    assert asked.json()["choices"][0]["text"] == expected.text


def test_others_are_answered_while_a_request_is_read(load_tiny: Any, serve_tiny: Any) -> None:
    reads, go_on = threading.Event(), threading.Event()

    def loading() -> mlxfill.Engine:
        engine: mlxfill.Engine = load_tiny()
        check = engine.check

        def slow(prompt: Any, **options: Any) -> Any:
            if options.get("schema"):
                reads.set()
                go_on.wait()
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
            assert reads.wait(AT_ALL)
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


def test_a_stream_that_waits_for_its_turn_hears_that_it_is_alive(
    load_tiny: Any, serve_tiny: Any
) -> None:
    stands, go_on = threading.Event(), threading.Event()

    def stuck(_: Any, logits: Any) -> Any:
        if not stands.is_set():
            stands.set()
            go_on.wait()
        return logits

    with (
        serve_tiny(processed_by(stuck, load_tiny), clock=Clock(), hang=0.2) as served,
        served.http() as http,
        ThreadPoolExecutor(1) as pool,
    ):
        try:
            first = pool.submit(http.post, CHAT, json=BODY)
            assert stands.wait(AT_ALL)
            with http.stream("POST", CHAT, json={**BODY, "stream": True}) as waiting:
                lines = waiting.iter_lines()
                assert waiting.status_code == 200
                assert next(lines) == ": still at work"
                go_on.set()
                assert [line for line in lines if line][-1] == "data: [DONE]"
        finally:
            go_on.set()
        assert first.result().status_code == 200
        assert served.idle()
