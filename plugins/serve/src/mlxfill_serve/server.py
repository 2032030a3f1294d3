"""The HTTP server around the application."""

from __future__ import annotations

import socket
import sys
from typing import TYPE_CHECKING

import uvicorn

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from mlxfill_serve.settings import ServeSettings


def run(app: Starlette, settings: ServeSettings) -> None:
    """Serve until SIGTERM or Ctrl-C, then let running requests end."""
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        log_level="warning",
        timeout_graceful_shutdown=int(settings.drain),
        server_header=False,
    )
    sock = socket.create_server((settings.host, settings.port))
    host, port = sock.getsockname()[:2]
    print(f"mlxfill serves on http://{host}:{port}", file=sys.stderr, flush=True)  # noqa: T201
    uvicorn.Server(config).run(sockets=[sock])
