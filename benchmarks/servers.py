"""Servers to measure, as processes of their own, and a client that costs little."""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

CHAT = "/v1/chat/completions"
PATIENCE = 60.0
"""Seconds that a server may take to load its model."""


@dataclass(frozen=True)
class Server:
    """Where a server listens, and its process."""

    host: str
    port: int
    pid: int

    def post(self, body: dict[str, Any]) -> http.client.HTTPResponse:
        """Send a chat request; the answer is still to be read."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=300)
        headers = {"Content-Type": "application/json"}
        connection.request("POST", CHAT, json.dumps(body), headers)
        response = connection.getresponse()
        if response.status != http.HTTPStatus.OK:
            raise SystemExit(f"the server answers {response.status}: {response.read()!r}")
        return response

    def ask(self, body: dict[str, Any]) -> dict[str, Any]:
        """Answer in one piece."""
        answer: dict[str, Any] = json.loads(self.post(body).read())
        return answer

    def stream(self, body: dict[str, Any]) -> Iterator[bytes]:
        """Chunks of a stream, as bytes of JSON."""
        for line in self.post({**body, "stream": True}):
            if line.startswith(b"data: {"):
                yield line[6:]

    def rss(self) -> int:
        """Memory of the process in bytes."""
        pages = Path(f"/proc/{self.pid}/statm").read_text("ascii").split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def mlxfill_serve(model: Path | str, *arguments: str, **settings: str) -> Iterator[Server]:
    """``mlxfill serve`` on a free port; ``settings`` override its config: ``CACHE__MAX_MB="9"``."""
    program = [sys.executable, "-m", "mlxfill", "serve", "--port", "0", "--model", str(model)]
    changes = {f"MLXFILL_{name}": value for name, value in settings.items()}
    with _process([*program, *arguments], changes) as process:
        url = _announced(process)
        yield Server(url.hostname or "", url.port or 0, process.pid)


@contextmanager
def mlx_lm_server(model: Path | str, *arguments: str) -> Iterator[Server]:
    """mlx-lm's own server on a free port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    program = [sys.executable, "-m", "mlx_lm", "server", "--log-level", "ERROR"]
    where = ["--host", "127.0.0.1", "--port", str(port), "--model", str(model)]
    with _process([*program, *where, *arguments]) as process:
        threading.Thread(target=_drain, args=(process,), daemon=True).start()
        _wait_for(port, process)
        yield Server("127.0.0.1", port, process.pid)


@contextmanager
def _process(
    command: list[str], changes: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(  # noqa: S603 - the programs under measurement
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(changes or {})},
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _announced(process: subprocess.Popen[str]) -> Any:  # noqa: ANN401 - a SplitResult
    said = []
    for line in process.stderr or ():
        found = re.search(r"http://\S+", line)
        if found:
            threading.Thread(target=_drain, args=(process,), daemon=True).start()
            return urlsplit(found[0])
        said.append(line)
    raise SystemExit(f"the server does not start: {''.join(said)}")


def _drain(process: subprocess.Popen[str]) -> None:
    """Let the process never wait for somebody to read what it says."""
    for _ in process.stderr or ():
        pass


def _wait_for(port: int, process: subprocess.Popen[str]) -> None:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and process.poll() is None:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", "/health")
            if connection.getresponse().status == http.HTTPStatus.OK:
                return
        except OSError:
            time.sleep(0.1)
    raise SystemExit("mlx_lm server does not start")
