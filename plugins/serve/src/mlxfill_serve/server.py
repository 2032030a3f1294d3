"""The HTTP server around the application."""

from __future__ import annotations

import socket
import sys
from typing import TYPE_CHECKING

from mlxfill import InputError

if TYPE_CHECKING:
    import uvicorn
    from starlette.applications import Starlette

    from mlxfill_serve.settings import ServeSettings

IDLE = 75
"""Seconds that an idle connection stays open."""


def listen(settings: ServeSettings) -> socket.socket:
    """A socket at the address of ``settings``.

    :raises InputError: the address is taken, not ours, or no address.
    """
    host, port = settings.host, settings.port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        raise InputError(f"cannot listen on {host} port {port}: {error.strerror}") from None


def make_server(app: Starlette, settings: ServeSettings) -> uvicorn.Server:
    """A server that lets running requests end when it is told to stop."""
    import uvicorn

    config = uvicorn.Config(
        app,
        log_level="warning",
        lifespan="off",
        timeout_graceful_shutdown=max(int(settings.drain), 1),
        timeout_keep_alive=IDLE,
        server_header=False,
        ws="none",
    )
    return uvicorn.Server(config)


def run(app: Starlette, settings: ServeSettings, sock: socket.socket) -> None:
    """Serve until SIGTERM or Ctrl-C."""
    host, port = sock.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    print(f"mlxfill serves on http://{shown}:{port}", file=sys.stderr, flush=True)  # noqa: T201
    make_server(app, settings).run(sockets=[sock])
