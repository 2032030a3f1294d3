"""A server inside this process: for notebooks, tests and measurements."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from attrs import evolve, frozen

from mlxfill_serve.app import make_app
from mlxfill_serve.server import listen, make_server, url_of
from mlxfill_serve.settings import ServeSettings
from mlxfill_serve.worker import EngineThread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mlxfill import Engine


@frozen
class Serving:
    """A running server: ``url`` without a path, and the thread that owns its engine."""

    url: str
    worker: EngineThread


@contextmanager
def serving(
    load: Callable[[], Engine],
    *,
    name: str = "tiny",
    settings: ServeSettings | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Serving]:
    """Serve on a free port of this machine while the block runs.

    :param load: makes the engine; called in the thread that will own it.
    :param name: what clients call the model.
    :param clock: seconds, by which an engine that hangs is told from one that works.
    """
    settled = evolve(settings or ServeSettings(), port=0)
    worker = EngineThread(load, settings=settled, clock=clock)
    worker.start()
    sock = listen(settled)
    server = make_server(make_app(worker, name=name, settings=settled), worker, settled)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]}, name="mlxfill-http")
    thread.start()
    try:
        yield Serving(url_of(sock), worker)
    finally:
        server.should_exit = True
        thread.join()
        worker.stop()
        sock.close()
