"""Many requests at once, some of whose clients hang up: each gets what it would get alone.

``benchmarks/serve_soak.py`` does the same with a thousand.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import TYPE_CHECKING, Any

from mlxfill_model_tiny import held_out_asks

if TYPE_CHECKING:
    import httpx

CHAT = "/v1/chat/completions"
REQUESTS, AT_ONCE, HANG_UPS = 36, 12, 0.2


def bodies() -> list[dict[str, Any]]:
    """Requests of mixed sizes, with and without tools, greedy and sampled."""
    random = Random(5)
    made = []
    for number, ask in enumerate(held_out_asks(8)):
        body: dict[str, Any] = {"messages": ask.messages, "max_tokens": random.choice([3, 12, 40])}
        if number % 2:
            body["tools"] = ask.tools
        if number % 3:
            body |= {"temperature": 1.2, "top_p": 0.9, "seed": number}
        made.append({**body, "stream": True, "mlxfill": {"origins": True}})
    return made


def told(http: httpx.Client, body: dict[str, Any], most: int | None = None) -> list[int]:
    """The ids of a reply; hangs up after ``most`` of them."""
    ids: list[int] = []
    with http.stream("POST", CHAT, json=body) as response:
        assert response.status_code == 200
        for line in response.iter_lines():
            if line.startswith("data: {"):
                token = json.loads(line.removeprefix("data: ")).get("mlxfill", {}).get("token")
                ids += [] if token is None else [token]
            if most is not None and len(ids) >= most:
                break
        else:
            assert line in {"", "data: [DONE]"}
    return ids


def test_each_of_many_requests_gets_what_it_gets_alone(serve_tiny: Any) -> None:
    random = Random(6)
    asked = bodies()
    with serve_tiny(rows=4, queue=REQUESTS) as served, served.http() as http:
        alone = [told(http, body) for body in asked]
        assert any(len(ids) > 12 for ids in alone)

        def ask(number: int) -> None:
            at = number % len(asked)
            most = random.randrange(1, 10) if random.random() < HANG_UPS else None
            ids = told(http, asked[at], most)
            assert ids == alone[at][: None if most is None else len(ids)]

        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(ask, range(REQUESTS)))
        assert served.idle()
        assert http.get("/health").json()["outstanding"] == 0
