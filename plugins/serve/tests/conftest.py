"""What the tests share: an empty working folder, and a real server on a free port."""

from __future__ import annotations

import os
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx
import mlx.core as mx
import openai
import pytest
import uvicorn
from attrs import define

import mlxfill
from mlxfill_serve import EngineThread, ServeSettings, make_app
from mlxfill_serve.server import listen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

mx.set_default_device(mx.cpu)

SOURCES = ["fill-strict", "fill-echo", "spec-ngram", "constrain"]
HELLO = [{"role": "user", "content": "Where is send_key used?"}]
FREE = {"gate": {"enabled": False}}
"""Speculation whether it pays here or not, and no measuring."""


@define
class Served:
    """A running server."""

    url: str
    worker: EngineThread

    def http(self, **more: Any) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=60, trust_env=False, **more)

    def sdk(self, key: str = "none") -> openai.OpenAI:
        return openai.OpenAI(
            base_url=f"{self.url}/v1",
            api_key=key,
            max_retries=0,
            http_client=openai.DefaultHttpxClient(trust_env=False),
        )

    def idle(self, within: float = 10.0) -> bool:
        """Whether nothing runs any more, or soon."""
        until = time.monotonic() + within
        while self.worker.outstanding and time.monotonic() < until:
            time.sleep(0.01)
        return self.worker.outstanding == 0


def load(**options: Any) -> mlxfill.Engine:
    """The tiny model with the sources."""
    settled: dict[str, Any] = {"plugins": SOURCES, "config": FREE}
    return mlxfill.load("tiny", **{**settled, **options})


@contextmanager
def serving(loading: Callable[[], mlxfill.Engine] = load, **settings: Any) -> Iterator[Served]:
    """A server in this process, on a free port."""
    settled = ServeSettings(port=0, **settings)
    worker = EngineThread(loading, settings=settled)
    worker.start()
    app = make_app(worker, name="tiny", settings=settled)
    sock = listen(settled)
    config = uvicorn.Config(app, log_level="error", lifespan="off", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]})
    thread.start()
    try:
        yield Served(f"http://127.0.0.1:{sock.getsockname()[1]}", worker)
    finally:
        server.should_exit = True
        thread.join()
        worker.stop()
        sock.close()


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
    with serving(rows=4, queue=16, max_body=200_000) as running:
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
