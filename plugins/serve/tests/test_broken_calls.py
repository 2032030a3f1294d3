"""What the model begins as a call and what is none: whole, streamed and by the engine alike."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import httpx

    import mlxfill

ASK = [{"role": "user", "content": "Look for digits."}]
HEAD = '<tool_call>\n{"name": "grep", "arguments": '
WHOLE = HEAD + '{"pattern": "x"}}\n</tool_call>'
BROKEN = {
    "illegal escape": HEAD + r'{"pattern": "\d+\s"}}' + "\n</tool_call>",
    "raw newline": HEAD + '{"pattern": "a\nb"}}\n</tool_call>',
    "missing brace": HEAD + '{"pattern": "x"}\n</tool_call>',
    "one brace more": HEAD + '{"pattern": "x"}}}\n</tool_call>',
    "end in a string": HEAD + '{"pattern": "x',
    "end before the arguments": HEAD,
    "words after it": HEAD + '{"pattern": "x"}} and so on\n</tool_call>',
    "no number": HEAD + '{"pattern": NaN}}\n</tool_call>',
    "beyond a double": HEAD + '{"pattern": 1e999}}\n</tool_call>',
    "a key twice": HEAD + '{"pattern": "x", "pattern": "y"}}\n</tool_call>',
    "half a pair": HEAD + r'{"pattern": "\ud83d"}}' + "\n</tool_call>",
    "no such tool": WHOLE.replace("grep", "find"),
    "no object": HEAD + '["x"]}\n</tool_call>',
    "more than a call": HEAD + '{"pattern": "x"}, "why": "so"}\n</tool_call>',
    "two kinds of arguments": HEAD + '{"pattern": "x"}, "parameters": {}}\n</tool_call>',
    "the second one": HEAD + '{"pattern": "x"}}, {"name": "grep", "arguments": []}\n</tool_call>',
}
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "grep",
        "description": "Looks for a pattern.",
        "parameters": {"type": "object", "properties": {"pattern": {"type": "string"}}},
    },
}


@pytest.fixture(scope="module")
def loading(load_tiny: Any, script: Any) -> Callable[[], mlxfill.Engine]:
    def scripted() -> mlxfill.Engine:
        engine: mlxfill.Engine = script.on(
            load_tiny(plugins=["fill-echo", "spec-ngram", "constrain"])
        )
        return engine

    return scripted


@pytest.fixture(scope="module")
def engine(loading: Callable[[], mlxfill.Engine]) -> mlxfill.Engine:
    return loading()


@pytest.fixture(scope="module")
def http(serve_tiny: Any, loading: Callable[[], mlxfill.Engine]) -> Iterator[httpx.Client]:
    with serve_tiny(loading) as served, served.http() as client:
        yield client


def chat(http: httpx.Client, **more: Any) -> dict[str, Any]:
    """The choice of an answer."""
    body = {"model": "tiny", "messages": ASK, "tools": [TOOL], "temperature": 0, **more}
    answer = http.post("/v1/chat/completions", json={**body, **PLAIN}).json()
    choice: dict[str, Any] = answer["choices"][0]
    return choice


def chat_stream(http: httpx.Client) -> tuple[str, str]:
    """Content and finish reason of a stream."""
    body = {"model": "tiny", "messages": ASK, "tools": [TOOL], "temperature": 0, "stream": True}
    text = http.post("/v1/chat/completions", json={**body, **PLAIN}).text
    told = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    choices = [chunk["choices"][0] for chunk in told]
    content = "".join(choice["delta"].get("content") or "" for choice in choices)
    return content, choices[-1]["finish_reason"]


def responses(http: httpx.Client) -> tuple[dict[str, Any], dict[str, Any]]:
    """The response as a whole, and the one that a stream ends with."""
    tool = {"type": "function", **TOOL["function"]}
    body = {"model": "tiny", "input": ASK[0]["content"], "tools": [tool], "temperature": 0}
    body |= PLAIN
    whole = http.post("/v1/responses", json=body).json()
    text = http.post("/v1/responses", json={**body, "stream": True}).text
    last = [line for line in text.splitlines() if line.startswith("data: ")][-1]
    return whole, json.loads(last[6:])


PLAIN = {"chat_template_kwargs": {"enable_thinking": False}}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_call_is_text_wherever_it_is_read(
    name: str, script: Any, engine: mlxfill.Engine, http: httpx.Client
) -> None:
    said = script.text = BROKEN[name]
    asked = engine.generate(
        ASK, tools=[TOOL], template_options={"enable_thinking": False}, temperature=0
    )
    assert (asked.text, asked.tool_calls, asked.finish_reason) == (said, [], "stop")
    choice = chat(http)
    assert choice["finish_reason"] == "stop"
    assert choice["message"].get("tool_calls") is None
    assert choice["message"]["content"] == said
    assert chat_stream(http) == (said, "stop")
    whole, streamed = responses(http)
    assert whole["status"] == streamed["response"]["status"]
    for response in (whole, streamed["response"]):
        (message,) = response["output"]
        assert message["content"][0]["text"] == said
    if name in BEGUN:
        assert streamed["type"] == "response.incomplete"
        assert whole["incomplete_details"] == {"reason": "malformed_function_call"}


BEGUN = set(BROKEN) - {"end before the arguments", "no such tool", "no object"}
"""Those of which a stream has told when they turn out to be none."""


def test_a_good_call_before_a_broken_one_counts(
    script: Any, engine: mlxfill.Engine, http: httpx.Client
) -> None:
    broken = BROKEN["missing brace"]
    script.text = f"{WHOLE}\n{broken}"
    asked = engine.generate(
        ASK, tools=[TOOL], template_options={"enable_thinking": False}, temperature=0
    )
    assert asked.tool_calls == [{"name": "grep", "arguments": {"pattern": "x"}}]
    choice = chat(http)
    assert choice["finish_reason"] == "tool_calls"
    (call,) = choice["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"pattern": "x"}
    assert choice["message"]["content"] == broken
    assert chat_stream(http) == (broken, "tool_calls")


@pytest.mark.parametrize("parameters", [None, {}, {"type": "object", "properties": {}}])
def test_a_forced_call_of_a_tool_without_parameters_has_no_arguments(
    parameters: dict[str, Any] | None, script: Any, http: httpx.Client
) -> None:
    script.text = WHOLE.replace('{"pattern": "x"}', "{}")
    function: dict[str, Any] = {"name": "grep", "description": "Looks for a pattern."}
    if parameters is not None:
        function["parameters"] = parameters
    named = {"type": "function", "function": {"name": "grep"}}
    tool = {"type": "function", "function": function}
    choice = chat(http, tools=[tool], tool_choice=named)
    (call,) = choice["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {}
    script.text = WHOLE
    refused = http.post(
        "/v1/chat/completions",
        json={"model": "tiny", "messages": ASK, "tools": [tool], "tool_choice": named, **PLAIN},
    )
    assert '"pattern' not in refused.text
