"""A share of a soak goes through the server: several clients at once, some of whom hang up."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from mlxfill_serve import ServeSettings, serving
from soak_draws import SCHEMAS, STOPS, Asked
from soak_judge import TINY, MismatchError, World

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from mlxfill import Engine, Result
    from soak_acts import Tally

BROKEN: tuple[bytes, ...] = (
    b"",
    b"{",
    b"[]",
    b'{"messages": []}',
    b'{"messages": [{"role": "user"}], "max_tokens": -5}',
    b'{"messages": [{"role": "user", "content": "x"}], "nonsense": 1}',
    b'{"messages": [{"role": "user", "content": "x"}], "temperature": NaN}',
    b'{"messages": [{"role": "user", "content": "\\ud800"}]}',
    b"[" * 10000,
)


@dataclass(frozen=True)
class Plan:
    """A request as a body, what plain decoding says to it, and after how many tokens to hang up."""

    body: dict[str, Any]
    expected: Result
    patience: int | None
    stream: bool


def served(world: World, draw: Random, tally: Tally, opened: Callable[[], Engine]) -> None:
    """Start a server, ask it from several threads, stop it."""
    plans = [plan(world, draw) for _ in range(draw.randint(4, 12))]
    broken = draw.sample(BROKEN, 2)
    settings = ServeSettings(rows=draw.randint(1, 6), queue=50, drain=1)
    with serving(opened, settings=settings) as running:
        where = urlsplit(running.url).netloc
        with ThreadPoolExecutor(draw.randint(1, 5)) as pool:
            refused = [pool.submit(_refused, where, raw) for raw in broken]
            asked = [pool.submit(_ask, where, each) for each in plans]
            for each in (*refused, *asked):
                each.result()
        until = time.monotonic() + 20
        while running.worker.outstanding and time.monotonic() < until:
            time.sleep(0.02)
        if running.worker.outstanding or not running.worker.alive:
            raise MismatchError(f"{running.worker.outstanding} requests are left")
    tally.requests += len(plans) + len(broken)


def plan(world: World, draw: Random) -> Plan:
    """A body of a chat or a completion."""
    ask = draw.choice([a for a in world.asks if not any("tool_calls" in m for m in a.messages)])
    options: dict[str, Any] = {"max_tokens": draw.choice([1, 5, 30, 80])}
    if draw.random() < 0.5:  # noqa: PLR2004 - shares, here and below
        options |= {"temperature": 1.1, "top_p": 0.9, "seed": draw.randrange(1 << 30)}
    if draw.random() < 0.2:  # noqa: PLR2004
        options["stop"] = draw.sample(STOPS, 2)
    if draw.random() < 0.2:  # noqa: PLR2004
        options["presence_penalty"] = 0.5
    tools = ask.tools if draw.random() < 0.6 else None  # noqa: PLR2004
    asked = Asked(ask.messages, tools, options)
    extra: dict[str, Any] = {}
    if tools is None and draw.random() < 0.3:  # noqa: PLR2004
        schema = draw.choice(SCHEMAS)
        asked = asked.changed(schema=schema)
        whole = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
        named = schema.get("type") == "json_object" or set(schema) & {"regex", "lark"}
        extra["response_format"] = schema if named else whole
    expected = world.plain(TINY, asked)
    told: dict[str, Any] = {"origins": True}
    if draw.random() < 0.4:  # noqa: PLR2004
        told["session"] = f"client {draw.randrange(3)}"
    body = {"messages": ask.messages, **options, **extra, "mlxfill": told}
    if tools:
        body["tools"] = tools
    patience = draw.randint(1, 20) if draw.random() < 0.2 else None  # noqa: PLR2004
    return Plan(body, expected, patience, patience is not None or draw.random() < 0.6)  # noqa: PLR2004


def _ask(where: str, plan: Plan) -> None:
    connection = HTTPConnection(where, timeout=120)
    try:
        raw = json.dumps({**plan.body, "stream": plan.stream})
        connection.request("POST", "/v1/chat/completions", raw)
        response = connection.getresponse()
        if response.status != HTTPStatus.OK:
            raise MismatchError(f"{response.status}: {response.read()[:300]!r}")
        if not plan.stream:
            ids = _whole(json.loads(response.read()))
        else:
            ids = _streamed(response, plan.patience)
    finally:
        connection.close()
    wanted = plan.expected.tokens
    if ids != (wanted if plan.patience is None else wanted[: len(ids)]):
        raise MismatchError(f"{ids} over http, plainly {wanted}: {json.dumps(plan.body)}")


def _whole(answer: dict[str, Any]) -> list[int]:
    tokens = answer["choices"][0]["mlxfill"]["tokens"]
    return [token["token"] for token in tokens if token["token"] is not None]


def _streamed(response: Any, patience: int | None) -> list[int]:  # noqa: ANN401 - an HTTPResponse
    ids: list[int] = []
    for line in response:
        if line.startswith(b"data: {"):
            chunk = json.loads(line[6:])
            if "error" in chunk:
                raise MismatchError(f"{chunk['error']}")
            token = chunk.get("mlxfill", {}).get("token")
            ids += [] if token is None else [token]
        if line.startswith(b"data: [DONE]") or (patience is not None and len(ids) >= patience):
            return ids
    raise MismatchError(f"a stream ended after {len(ids)} tokens")


def _refused(where: str, raw: bytes) -> None:
    connection = HTTPConnection(where, timeout=60)
    try:
        connection.request("POST", "/v1/chat/completions", raw)
        response = connection.getresponse()
        said = json.loads(response.read())
    finally:
        connection.close()
    if response.status != HTTPStatus.BAD_REQUEST or "\n" in said["error"]["message"]:
        raise MismatchError(f"{raw[:80]!r} gets {response.status}: {said}")
