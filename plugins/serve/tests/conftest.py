"""What the tests share: an empty working folder, and a real server on a free port."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx
import mlx.core as mx
import openai
import pytest
from attrs import define, frozen

import mlxfill
from mlxfill_serve import ServeSettings, serving
from patience import AT_ALL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from mlxfill_serve import EngineThread

mx.set_default_device(mx.cpu)

SOURCES = ["fill-strict", "fill-echo", "spec-ngram", "constrain"]
FREE = {"gate": {"enabled": False}, "cache": {"every_request": True}}


@frozen
class Served:
    """A running server, and clients of it."""

    url: str
    worker: EngineThread

    def http(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=AT_ALL, trust_env=False)

    def sdk(self, key: str = "none") -> openai.OpenAI:
        return openai.OpenAI(
            base_url=f"{self.url}/v1",
            api_key=key,
            max_retries=0,
            http_client=openai.DefaultHttpxClient(trust_env=False),
        )

    def idle(self) -> bool:
        """Whether nothing runs any more, or will some time."""
        return self.until(lambda: not self.worker.outstanding)

    @staticmethod
    def until(condition: Callable[[], object]) -> bool:
        """Wait until something has come true; whether it has."""
        end = time.monotonic() + AT_ALL
        while not condition() and time.monotonic() < end:
            time.sleep(0.01)
        return bool(condition())


@define
class Script:
    """A plugin that makes the model say a text; with None it says what it likes."""

    text: str | None = None

    def say(self, text: str, thought: str = "") -> None:
        """What the model writes in all replies from now on."""
        self.text = f"{thought}\n</think>\n\n{text}"

    @mlxfill.hookimpl
    def mlxfill_logits_processors(self, request: mlxfill.Request) -> list[Any]:
        if self.text is None:
            return []
        begun = len(request.prompt_ids)
        said = request.tokenizer.encode(self.text, add_special_tokens=False)
        wanted = [*said, min(request.eos_ids)]

        def process(tokens: mx.array, logits: mx.array) -> mx.array:
            here = wanted[min(tokens.size - begun, len(wanted) - 1)]
            return mx.where(mx.arange(logits.shape[-1]) == here, 0.0, -mx.inf)[None]

        return [process]

    def on(self, engine: mlxfill.Engine) -> mlxfill.Engine:
        """The engine, whose model says it."""
        engine.plugins._switch_on("script", self, None)
        return engine


def load_tiny(**options: Any) -> mlxfill.Engine:
    """The tiny model with all kinds of sources, which speculate whether it pays here or not."""
    settled: dict[str, Any] = {"plugins": SOURCES, "config": FREE}
    return mlxfill.load("tiny", **{**settled, **options})


@contextmanager
def serve_tiny(
    loading: Callable[[], mlxfill.Engine] = load_tiny,
    *,
    clock: Callable[[], float] = time.monotonic,
    **settings: Any,
) -> Iterator[Served]:
    """A server in this process; ``settings`` are its operator's, and by default nothing hangs."""
    operator = ServeSettings(**{"drain": 1, "hang": 0, "timeout": AT_ALL, **settings})
    with serving(loading, settings=operator, clock=clock) as running:
        yield Served(running.url, running.worker)


@pytest.fixture(scope="session", name="load_tiny")
def _load_tiny() -> Callable[..., mlxfill.Engine]:
    return load_tiny


@pytest.fixture(scope="session", name="serve_tiny")
def _serve_tiny() -> Callable[..., Any]:
    return serve_tiny


@pytest.fixture(scope="module")
def script() -> Script:
    """What the model of this module's servers says, once ``script.on(engine)`` was called."""
    return Script()


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder of a user without any config; cost curves stay in it."""
    for variable in os.environ:
        if variable.startswith(("MLXFILL_", "OPENAI_")):
            monkeypatch.delenv(variable)
    for variable in ("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / "home"))
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture(scope="session")
def served() -> Iterator[Served]:
    """The server that most tests share."""
    with serve_tiny(rows=4, queue=16, max_body=200_000) as running:
        yield running


@pytest.fixture
def client(served: Served) -> Iterator[openai.OpenAI]:
    """OpenAI's own client of it."""
    with served.sdk() as client:
        yield client


@pytest.fixture
def http(served: Served) -> Iterator[httpx.Client]:
    """A plain client of it."""
    with served.http() as client:
        yield client


@pytest.fixture(scope="session")
def plain() -> Iterator[mlxfill.Engine]:
    """The tiny model without plugins, to compare with."""
    with mlxfill.load("tiny", plugins=[], config={}) as engine:
        yield engine
