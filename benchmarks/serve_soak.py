"""A thousand requests at once to the server, some of whose clients hang up.

    python benchmarks/serve_soak.py [--requests N] [--at-once N] [--rows N]

Every reply must be what the same request gets alone, every row must be free at the end, and the
memory of the server may grow by 5 % at most once it is warm.  Linux only (``/proc``).
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from rich.progress import track

from mlxfill_model_tiny import held_out_asks
from serve import SOURCES
from servers import Server, mlxfill_serve

HANG_UPS, KINDS, GROWTH = 0.2, 40, 0.05
PROMPTS = "32"
"""Megabytes of the prompt cache: the warm-up fills it, so that what grows after that is a leak."""
LONG = 120
"""Lines of a long prompt: about 1,300 tokens."""


@dataclass
class Tally:
    """What became of the requests."""

    complete: int = 0
    hung_up: int = 0
    wrong: list[int] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--at-once", type=int, default=50)
    parser.add_argument("--rows", type=int, default=8)
    options = parser.parse_args()
    asked = bodies(KINDS)
    arguments = ("--plugins", SOURCES, "--rows", str(options.rows), "--queue", "1000")
    with mlxfill_serve("tiny", *arguments, CACHE__MAX_MB=PROMPTS) as server:
        alone = [told(server, body) for body in track(asked, "each alone", transient=True)]
        warm_up(server, asked, options.at_once)
        before, begun = server.rss(), time.perf_counter()
        tally = soak(server, asked, alone, options.requests, options.at_once)
        seconds, after = time.perf_counter() - begun, settled(server)
        left = health(server)["outstanding"]
    growth = after / before - 1
    print(
        f"{options.requests} requests, {options.at_once} at once: {tally.complete} complete, "
        f"{tally.hung_up} hung up, {len(tally.wrong)} wrong, {len(tally.lost)} lost, "
        f"{left} rows left, {seconds:.0f} s\n"
        f"memory {before / 1e6:.0f} MB when warm, {after / 1e6:.0f} MB at the end ({growth:+.1%})"
    )
    for line in [*(f"wrong: kind {kind}" for kind in tally.wrong), *tally.lost][:10]:
        print(line)
    sys.exit(bool(tally.wrong or tally.lost or left or growth > GROWTH))


def bodies(count: int) -> list[dict[str, Any]]:
    """Requests of mixed sizes, with and without tools, greedy and sampled; a few are long."""
    draw = random.Random(1)  # noqa: S311 - a soak repeats itself
    made = []
    for number, ask in enumerate(held_out_asks(count)):
        messages = list(ask.messages)
        if number % 10 == 0:
            lines = (f"{at}: {draw.randrange(10**6)}" for at in range(LONG))
            messages.insert(0, {"role": "user", "content": "\n".join(lines)})
            messages.insert(1, {"role": "assistant", "content": "Noted."})
        body: dict[str, Any] = {"messages": messages, "max_tokens": draw.choice([2, 10, 60])}
        if number % 3:
            body["tools"] = ask.tools
        if number % 2:
            body |= {"temperature": 1.2, "top_p": 0.9, "seed": number}
        made.append({**body, "mlxfill": {"origins": True}})
    return made


def told(server: Server, body: dict[str, Any], most: int | None = None) -> list[int]:
    """The ids of a reply; hangs up after ``most`` of them."""
    ids: list[int] = []
    response = server.post({**body, "stream": True})
    try:
        for line in response:
            if line.startswith(b"data: {"):
                token = json.loads(line[6:]).get("mlxfill", {}).get("token")
                ids += [] if token is None else [token]
            if most is not None and len(ids) >= most:
                return ids
            if line.startswith(b"data: [DONE]"):
                return ids
    finally:
        response.close()
    raise ConnectionError(f"a stream ended after {len(ids)} tokens")


def warm_up(server: Server, asked: list[dict[str, Any]], at_once: int) -> None:
    """Fill every cache and pool."""
    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(lambda number: told(server, asked[number % len(asked)]), range(200)))


def soak(
    server: Server,
    asked: list[dict[str, Any]],
    alone: list[list[int]],
    requests: int,
    at_once: int,
) -> Tally:
    """All requests; who hangs up is drawn."""
    tally, draw = Tally(), random.Random(2)  # noqa: S311
    plans = [draw.random() if draw.random() < HANG_UPS else None for _ in range(requests)]

    def ask(number: int) -> None:
        kind, share = number % len(asked), plans[number]
        most = None if share is None else 1 + int(share * (len(alone[kind]) - 1))
        try:
            ids = told(server, asked[kind], most)
        except (OSError, ValueError, SystemExit) as error:
            with tally.lock:
                tally.lost.append(f"lost: kind {kind}: {error}")
            return
        whole = most is None or ids == alone[kind]
        right = ids == alone[kind] if whole else ids == alone[kind][: len(ids)]
        with tally.lock:
            tally.complete += whole
            tally.hung_up += not whole
            tally.wrong += [] if right else [kind]

    with ThreadPoolExecutor(at_once) as pool:
        list(track(pool.map(ask, range(requests)), "soaking", requests, transient=True))
    return tally


def health(server: Server) -> dict[str, Any]:
    """What the server says of itself."""
    from http.client import HTTPConnection

    connection = HTTPConnection(server.host, server.port, timeout=10)
    connection.request("GET", "/health")
    told: dict[str, Any] = json.loads(connection.getresponse().read())
    return told


def settled(server: Server) -> int:
    """Memory once nothing runs any more."""
    until = time.monotonic() + 30
    while health(server)["outstanding"] and time.monotonic() < until:
        time.sleep(0.1)
    return server.rss()


if __name__ == "__main__":
    main()
