"""The extra ``audit``: a reply beside plain decoding."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from mlxfill_model_tiny import held_out_asks

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
REPEAT = [{"role": "user", "content": "Say twice: the quick brown fox. The quick brown fox."}]
BODY: dict[str, Any] = {"messages": REPEAT, "max_tokens": 24, "mlxfill": {"audit": True}}


@pytest.fixture(scope="module")
def auditing(serve_tiny: Any) -> Iterator[Any]:
    """A server whose operator allows audits of up to 2,000 tokens."""
    with serve_tiny(rows=3, audit=2000) as served:
        yield served


def audit_of(answer: httpx.Response) -> dict[str, Any]:
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()["mlxfill"]["audit"]
    return found


def test_each_proposed_token_stands_beside_the_models_own(auditing: Any) -> None:
    with auditing.http() as http:
        found = audit_of(http.post(CHAT, json=BODY))
    assert found["identical"] is True
    assert found["difference"] is None
    assert found["noise"] == found["caches"] == 0.0
    assert found["left_out"] == 0
    assert found["proposed"]
    for each in found["proposed"]:
        assert each["agrees"] == (each["proposed"] == each["model"])
        assert set(each["model"]) == {"id", "text"}
        assert each["margin"] >= 0
    counts = {(c["origin"], c["policy"]): c for c in found["counts"]}
    assert sum(c["proposed"] for c in counts.values()) == len(found["proposed"])
    for (origin, policy), count in counts.items():
        rows = [p for p in found["proposed"] if (p["origin"], p["policy"]) == (origin, policy)]
        assert count["agreed"] == sum(p["agrees"] for p in rows)
        assert count["entered"] == sum(p["entered"] for p in rows)


def test_it_says_what_the_command_line_says(auditing: Any, load_tiny: Any) -> None:
    ask = held_out_asks(1)[0]
    body = {**BODY, "messages": ask.messages, "tools": ask.tools, "temperature": 0}
    with auditing.http() as http:
        found = audit_of(http.post(CHAT, json=body))
    with load_tiny() as engine:
        alone = engine.audit(ask.messages, tools=ask.tools, max_tokens=24, temperature=0)
        decode = engine.tokenizer.decode
    expected = alone.as_dict(decode)
    assert found["proposed"] == expected["proposed"]
    assert {"template", "schema"} & {p["origin"] for p in found["proposed"]}


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_the_last_chunk_of_a_stream_carries_it(auditing: Any, path: str) -> None:
    body: dict[str, Any] = {**BODY, "stream": True}
    if path == TEXT:
        body = {**body, "prompt": "one two three one two three one two"}
        del body["messages"]
    with auditing.http() as http:
        lines = [line for line in http.post(path, json=body).text.split("\n\n") if line]
        whole = audit_of(http.post(path, json={**body, "stream": False}))
    assert lines[-1] == "data: [DONE]"
    chunks = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    assert [bool(chunk.get("mlxfill")) for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] > 0
    assert chunks[-1]["mlxfill"]["audit"] == whole


def test_many_audits_at_once_and_others_between_are_each_right(auditing: Any) -> None:
    plain = {key: value for key, value in BODY.items() if key != "mlxfill"}
    bodies = [BODY, plain, {**BODY, "seed": 3, "temperature": 1.0}] * 3
    with auditing.http() as http, ThreadPoolExecutor(9) as pool:
        alone = [http.post(CHAT, json=body).json() for body in bodies[:3]]
        together = list(pool.map(lambda body: http.post(CHAT, json=body).json(), bodies))
        assert auditing.idle()
    for one, many in zip(alone * 3, together, strict=True):
        assert many["choices"] == one["choices"]
        assert many.get("mlxfill") == one.get("mlxfill")


def test_who_hangs_up_during_an_audit_frees_its_place(auditing: Any) -> None:
    body = {**BODY, "stream": True, "max_tokens": 900, "temperature": 1.5, "seed": 1}
    with auditing.http() as http, http.stream("POST", CHAT, json=body) as response:
        for line in response.iter_lines():
            if '"finish_reason":"' in line:
                break
    assert auditing.idle()


def test_what_may_not_be_audited_is_told(auditing: Any, served: Any) -> None:
    with served.http() as http:
        refused = http.post(CHAT, json=BODY)
        assert refused.status_code == 400
        error = refused.json()["error"]
        assert error["param"] == "mlxfill.audit"
        assert "--audit N" in error["message"]
    with auditing.http() as http:
        for change, said in (
            ({"max_tokens": 2000}, "may have 2000 tokens"),
            ({"max_tokens": 4000}, "may have 2000 tokens"),
            ({"n": 2}, "one reply at a time"),
            ({"mlxfill": {"audit": "yes"}}, "mlxfill.audit"),
        ):
            refused = http.post(CHAT, json={**BODY, **change})
            assert refused.status_code == 400, refused.text
            assert said in refused.json()["error"]["message"]
        refused = http.post(TEXT, json={"prompt": ["a", "b"], "mlxfill": {"audit": True}})
        assert "one reply at a time" in refused.json()["error"]["message"]
