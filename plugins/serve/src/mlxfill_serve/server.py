"""The HTTP server around the application."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import socket
import sys
from typing import TYPE_CHECKING

import uvicorn

from mlxfill import InputError

if TYPE_CHECKING:
    from types import FrameType

    from starlette.applications import Starlette

    from mlxfill_serve.settings import ServeSettings
    from mlxfill_serve.worker import EngineThread

IDLE = 75
"""Seconds that an idle connection stays open."""

HUNG = 5
"""Seconds that an engine which was told to stop has before its requests are cut off."""

OTHER_PORT = {errno.EADDRINUSE, errno.EACCES}


def listen(settings: ServeSettings) -> socket.socket:
    """A socket at the address of ``settings``.

    :raises InputError: the address is taken, not ours, or no address; or others reach it and
        would need no key, and nobody said that they may.
    """
    host, port = settings.host, settings.port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        sock = socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        reason = str(error.strerror).partition(" (while")[0]
        remedy = "; --port N takes another, 0 a free one" if error.errno in OTHER_PORT else ""
        raise InputError(f"cannot listen on {host} port {port}: {reason}{remedy}") from None
    address = sock.getsockname()[0]
    if is_open(address, settings.api_key) and not settings.allow_public:
        sock.close()
        raise InputError(
            f"other machines reach {address} and need no key: give --api-key KEY, or --allow-public"
            " to let everybody in"
        )
    return sock


class Server(uvicorn.Server):
    """Lets running requests end when it is told to stop; those that take too long get an error.

    A second Ctrl-C ends them at once, a third does not even wait for that.
    """

    def __init__(self, config: uvicorn.Config, worker: EngineThread, drain: float) -> None:
        super().__init__(config)
        self.worker, self.drain = worker, drain
        self._signals = 0

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Called in the main thread for each signal."""
        self._signals += 1
        if self._signals == 2:  # noqa: PLR2004 - uvicorn would leave its requests behind
            self._captured_signals.append(sig)
            self.worker.leave()
        else:
            super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End all requests, then the server."""
        running = self.worker.outstanding
        if running and self._signals:
            _say(
                f"mlxfill stops when {running} running request{'s' * (running > 1)} ended,"
                f" after {self.drain:g} s at most; Ctrl-C: now"
            )
        timer = asyncio.get_running_loop().call_later(self.drain, self.worker.leave)
        try:
            await super().shutdown(sockets)
        finally:
            timer.cancel()


def url_of(sock: socket.socket) -> str:
    """Where a listening socket is found."""
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def is_open(address: str, api_key: str | None) -> bool:
    """Whether other machines can ask a server that listens on ``address`` and need no key."""
    return api_key is None and not ipaddress.ip_address(address.partition("%")[0]).is_loopback


def make_server(app: Starlette, worker: EngineThread, settings: ServeSettings) -> Server:
    """A server whose requests ``worker`` answers."""
    config = uvicorn.Config(
        app,
        log_level="warning",
        lifespan="off",
        timeout_graceful_shutdown=int(settings.drain) + HUNG,
        timeout_keep_alive=IDLE,
        server_header=False,
        ws="none",
    )
    return Server(config, worker, settings.drain)


def run(app: Starlette, worker: EngineThread, settings: ServeSettings, sock: socket.socket) -> None:
    """Serve until SIGTERM or Ctrl-C."""
    _say(f"mlxfill serves on {url_of(sock)}")
    address = sock.getsockname()[0]
    if is_open(address, settings.api_key):
        _say(f"whoever reaches {address} may send requests (--allow-public)")
    make_server(app, worker, settings).run(sockets=[sock])


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201
