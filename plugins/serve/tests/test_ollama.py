"""Ollama's API through its own client, and beside chat completions."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import ollama
import pytest

from mlxfill_model_tiny import held_out_asks

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

CHAT = "/v1/chat/completions"
ASKED: Any = [{"role": "user", "content": "Where is send_key used?"}]
ASK = held_out_asks(1)[0]
TOOLS: Any = ASK.tools
SENT: Any = [ollama.Tool.model_validate(tool).model_dump(exclude_none=True) for tool in TOOLS]
"""The tools as the client sends them: it leaves out what it does not know."""
OPTIONS: Any = {"num_predict": 90, "temperature": 0}


@pytest.fixture
def client(served: Any) -> Iterator[ollama.Client]:
    with ollama.Client(host=served.url, trust_env=False) as client:
        yield client


def said_in_chat(http: httpx.Client, **body: Any) -> tuple[str, str, list[Any], dict[str, Any]]:
    """Text, thoughts and calls of a chat completion, and its usage."""
    answer = http.post(CHAT, json={"max_tokens": 90, "temperature": 0, **body})
    assert answer.status_code == 200, answer.text
    told = answer.json()
    message = told["choices"][0]["message"]
    calls = [
        (call["function"]["name"], json.loads(call["function"]["arguments"]))
        for call in message.get("tool_calls") or ()
    ]
    text, thoughts = message["content"] or "", message.get("reasoning_content") or ""
    return text, thoughts, calls, told["usage"]


@pytest.mark.parametrize("tools", [None, TOOLS], ids=["text", "tools"])
def test_a_reply_is_that_of_chat_whole_and_streamed(
    client: ollama.Client, http: httpx.Client, tools: Any
) -> None:
    more = {} if tools is None else {"tools": SENT}
    text, thoughts, calls, usage = said_in_chat(http, messages=ASKED, **more)
    whole = client.chat("tiny", ASKED, tools=tools, options=OPTIONS)
    assert whole.message.content == text
    assert (whole.message.thinking or "") == thoughts
    found = [(c.function.name, dict(c.function.arguments)) for c in whole.message.tool_calls or ()]
    assert found == calls
    assert (whole.prompt_eval_count, whole.eval_count) == (
        usage["prompt_tokens"],
        usage["completion_tokens"],
    )
    *parts, last = client.chat("tiny:latest", ASKED, tools=tools, options=OPTIONS, stream=True)
    assert "".join(part.message.content or "" for part in parts) == text
    assert "".join(part.message.thinking or "" for part in parts) == thoughts
    told = [call for part in parts for call in part.message.tool_calls or ()]
    assert [(c.function.name, dict(c.function.arguments)) for c in told] == calls
    assert (last.done, last.eval_count) == (True, usage["completion_tokens"])


def test_a_turn_with_a_result_goes_on(client: ollama.Client, http: httpx.Client) -> None:
    first = client.chat("tiny", ASKED, tools=TOOLS, options=OPTIONS)
    (call,) = first.message.tool_calls or ()
    result = {"role": "tool", "content": "src/page.py:12", "tool_name": call.function.name}
    second = client.chat("tiny", [*ASKED, first.message, result], tools=TOOLS, options=OPTIONS)
    arguments = json.dumps(dict(call.function.arguments))
    in_chat = {
        "role": "assistant",
        "content": first.message.content,
        "reasoning_content": first.message.thinking,
        "tool_calls": [
            {"type": "function", "function": {"name": call.function.name, "arguments": arguments}}
        ],
    }
    named = {"role": "tool", "content": "src/page.py:12", "name": call.function.name}
    text, *_ = said_in_chat(http, messages=[*ASKED, in_chat, named], tools=SENT)
    assert second.message.content == text


def test_a_prompt_is_answered(client: ollama.Client, http: httpx.Client) -> None:
    system = {"role": "system", "content": "Be brief."}
    text, *_ = said_in_chat(http, messages=[system, *ASKED])
    options: Any = {"options": OPTIONS, "system": "Be brief."}
    prompt = ASKED[0]["content"]
    assert client.generate("tiny", prompt, **options).response == text
    parts = client.generate("tiny", prompt, stream=True, **options)
    assert "".join(part.response or "" for part in parts) == text


def test_a_schema_holds_the_reply_and_thinking_can_be_left_out(client: ollama.Client) -> None:
    schema = {
        "type": "object",
        "properties": {"ok": {"type": "boolean"}},
        "required": ["ok"],
        "additionalProperties": False,
    }
    told = client.chat("tiny", ASKED, format=schema, think=False, options=OPTIONS)
    assert isinstance(json.loads(told.message.content or "")["ok"], bool)
    assert not told.message.thinking


def test_the_model_is_listed_and_shown(client: ollama.Client) -> None:
    assert [each.model for each in client.list().models] == ["tiny"]
    assert {"completion", "tools"} <= set(client.show("tiny").capabilities or ())


@pytest.mark.parametrize(
    ("path", "body", "line"),
    [
        ("/api/chat", {"model": "other", "messages": ASKED}, "the model 'other' does not exist"),
        ("/api/generate", {"model": "tiny", "prompt": "x", "raw": True}, "raw"),
        (
            "/api/chat",
            {"model": "tiny", "messages": [{"role": "user", "content": "x", "images": ["aa"]}]},
            "only text is understood",
        ),
        ("/api/chat", {"messages": ASKED}, "model is missing"),
        ("/api/embed", {"model": "tiny", "input": "x"}, "there are: "),
        ("/v1/embeddings", {"model": "tiny", "input": "x"}, "/v1/embeddings: Not Found"),
    ],
)
def test_what_cannot_be_had_is_one_line(
    http: httpx.Client, path: str, body: dict[str, Any], line: str
) -> None:
    answer = http.post(path, json=body)
    assert answer.status_code in {400, 404}
    error = answer.json()["error"]
    said = error if path.startswith("/api/") else error["message"]
    assert line in said
    assert "\n" not in said
