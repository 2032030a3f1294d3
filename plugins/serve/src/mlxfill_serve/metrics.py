"""What Prometheus may ask."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.routing import Match

from mlxfill_serve.requestlog import CLIENT_GONE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from starlette.routing import Route
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from mlxfill import Stats
    from mlxfill_serve.jobs import Token
    from mlxfill_serve.requestlog import RequestLog
    from mlxfill_serve.worker import EngineThread

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
UNTIMED = ("/health", "/metrics")
"""What supervisors ask all the time, which would hide how long requests take."""
_SECONDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300)


class Metrics:
    """Counters of one server, in a registry of their own."""

    def __init__(self, worker: EngineThread) -> None:
        self._registry = registry = CollectorRegistry()
        self.requests = Counter(
            "mlxfill_requests", "Answered requests.", ["path", "status"], registry=registry
        )
        self.tokens = Counter(
            "mlxfill_tokens",
            "Generated tokens by where they came from.",
            ["origin"],
            registry=registry,
        )
        self.prompt = Counter(
            "mlxfill_prompt_tokens", "Tokens of prompts.", ["cached"], registry=registry
        )
        self.forwards = Counter(
            "mlxfill_target_forwards", "Forwards of the model after prompts.", registry=registry
        )
        self.first = Histogram(
            "mlxfill_first_byte_seconds",
            "From a request to the first byte of its answer.",
            ["path"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.whole = Histogram(
            "mlxfill_request_seconds",
            "From a request to the end of its answer.",
            ["path"],
            buckets=_SECONDS,
            registry=registry,
        )
        outstanding = Gauge(
            "mlxfill_outstanding_requests", "Requests that run or wait.", registry=registry
        )
        outstanding.set_function(lambda: worker.outstanding)
        alive = Gauge("mlxfill_engine_alive", "1 while the engine answers.", registry=registry)
        alive.set_function(lambda: worker.alive and not worker.hung)

    def page(self) -> bytes:
        """The answer to ``GET /metrics``."""
        return generate_latest(self._registry)

    def count(self, tokens: Iterable[Token], stats: Stats | None) -> None:
        """Take a choice into account, finished (with ``stats``) or not."""
        for token in tokens:
            if token.id is not None:
                self.tokens.labels(token.origin).inc()
        if stats is not None:
            self.forwards.inc(stats.target_forwards)
            self.prompt.labels("yes").inc(stats.cached_tokens)
            self.prompt.labels("no").inc(stats.prompt_tokens - stats.cached_tokens)


class Measured:
    """Counts, times and logs requests; those of ``UNTIMED`` are only counted."""

    def __init__(
        self, app: ASGIApp, metrics: Metrics, routes: Sequence[Route], log: RequestLog | None
    ) -> None:
        self._app, self._metrics, self._routes, self._log = app, metrics, routes, log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on and look at what is answered."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, metrics, path = time.perf_counter(), self._metrics, self._path(scope)
        timed, status, first = path not in UNTIMED, CLIENT_GONE, None

        async def watched(message: Message) -> None:
            nonlocal status, first
            if message["type"] == "http.response.start":
                status, first = message["status"], time.perf_counter() - begun
                metrics.requests.labels(path, status).inc()
                if timed:
                    metrics.first.labels(path).observe(first)
            await send(message)

        try:
            await self._app(scope, receive, watched)
        finally:
            seconds = time.perf_counter() - begun
            if timed:
                metrics.whole.labels(path).observe(seconds)
            if timed and self._log is not None:
                answer = scope.get("state", {}).get("answer")
                method = scope["method"]
                self._log.tell(
                    method, path, status, first_byte=first, seconds=seconds, answer=answer
                )

    def _path(self, scope: Scope) -> str:
        """The path as it was declared, also for whoever is refused before it is looked up.

        Only paths of this server become labels: anything else may be asked without end.
        """
        return next(
            (r.path for r in self._routes if r.matches(scope)[0] is not Match.NONE), "other"
        )
