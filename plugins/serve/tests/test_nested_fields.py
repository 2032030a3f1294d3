"""What objects inside a request hold and nothing heeds is named, whatever object it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import httpx

CHAT, TEXT, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
IGNORED = "X-Mlxfill-Ignored"
HELLO: dict[str, Any] = {"role": "user", "content": "Where is send_key used?"}
SAID: dict[str, Any] = {"role": "assistant", "content": "Nowhere."}
PART: dict[str, Any] = {"type": "text", "text": "Hello."}
CALL = {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "a", "output": "so"}
TOOL: dict[str, Any] = {"type": "function", "name": "f", "parameters": {}}
NAMED = {"type": "function", "function": {"name": "f"}}
SCHEMA = {"enum": [1]}
BODIES: dict[str, dict[str, Any]] = {
    CHAT: {"messages": [HELLO], "max_tokens": 2},
    TEXT: {"prompt": "def load(path):\n    return", "max_tokens": 2},
    RESPONSES: {"input": [HELLO], "max_output_tokens": 2},
}


def messages(**more: Any) -> dict[str, Any]:
    return {"messages": [HELLO, {**SAID, **more}, HELLO]}


def items(*more: dict[str, Any]) -> dict[str, Any]:
    return {"input": [HELLO, *more]}


TOLD: list[tuple[str, dict[str, Any], str]] = [
    # thoughts
    (RESPONSES, {"reasoning": {"summary": "auto"}}, "reasoning.summary"),
    (RESPONSES, {"reasoning": {"effort": "low", "temper": 1}}, "reasoning.temper"),
    (RESPONSES, {"reasoning": {"max_tokens": 5}}, "reasoning.max_tokens"),
    (RESPONSES, {"reasoning": {"effort": "low", "exclude": True}}, "reasoning.exclude"),
    (CHAT, {"reasoning": {"effort": "low", "max_tokens": 5}}, "reasoning.max_tokens"),
    (CHAT, {"extra_body": {"reasoning": {"summary": "auto"}}}, "extra_body.reasoning.summary"),
    (TEXT, {"reasoning": {"effort": "low"}}, "reasoning.effort"),
    (CHAT, {"thinking": {"type": "enabled", "budget_tokens": 9}}, "thinking.budget_tokens"),
    (CHAT, {"options": {"think": {"budget": 9}}}, "options.think.budget"),
    # how a reply comes
    (
        CHAT,
        {"stream_options": {"continuous_usage_stats": True}},
        "stream_options.continuous_usage_stats",
    ),
    (TEXT, {"stream_options": {"interval": 5}}, "stream_options.interval"),
    (RESPONSES, {"stream_options": {"interval": 5}}, "stream_options.interval"),
    (
        CHAT,
        {"extra_body": {"stream_options": {"interval": 5}}},
        "extra_body.stream_options.interval",
    ),
    (RESPONSES, {"include": ["reasoning.encrypted_content"]}, "include.0"),
    # what it must be
    (CHAT, {"response_format": {"type": "text", "schema": SCHEMA}}, "response_format.schema"),
    (TEXT, {"response_format": {"type": "json_object", "temper": 1}}, "response_format.temper"),
    (
        CHAT,
        {"response_format": {"type": "json_object", "schema": SCHEMA, "temper": 1}},
        "response_format.temper",
    ),
    (
        CHAT,
        {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA, "a": 1}}},
        "response_format.json_schema.a",
    ),
    (
        CHAT,
        {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}, "a": 1}},
        "response_format.a",
    ),
    (
        RESPONSES,
        {"text": {"format": {"type": "json_schema", "name": "a", "schema": SCHEMA, "a": 1}}},
        "text.format.a",
    ),
    (RESPONSES, {"text": {"format": {"type": "text", "schema": SCHEMA}}}, "text.format.schema"),
    (RESPONSES, {"text": {"temper": "glad"}}, "text.temper"),
    # what was said
    (CHAT, messages(temper="glad"), "messages.1.temper"),
    (CHAT, messages(content=[{**PART, "temper": "glad"}]), "messages.1.content.0.temper"),
    (RESPONSES, items({**SAID, "temper": "glad"}), "input.1.temper"),
    (
        RESPONSES,
        items({**SAID, "content": [{**PART, "temper": "glad"}]}),
        "input.1.content.0.temper",
    ),
    (
        RESPONSES,
        items({"type": "reasoning", "summary": [], "encrypted_content": "x"}, HELLO),
        "input.1.encrypted_content",
    ),
    (RESPONSES, items({**CALL, "temper": 1}, RESULT), "input.1.temper"),
    (RESPONSES, items(CALL, {**RESULT, "temper": 1}), "input.2.temper"),
    # what may be called
    (RESPONSES, {"tools": [{**TOOL, "defer_loading": True}]}, "tools.0.defer_loading"),
    (
        RESPONSES,
        {
            "tools": [TOOL],
            "tool_choice": {
                "type": "allowed_tools",
                "mode": "auto",
                "tools": [{"type": "function", "name": "f", "temper": 1}],
            },
        },
        "tool_choice.tools.0.temper",
    ),
    (
        CHAT,
        {
            "tools": [{"type": "function", "function": {"name": "f"}}],
            "tool_choice": {
                "type": "allowed_tools",
                "allowed_tools": {"mode": "auto", "tools": [NAMED], "temper": 1},
            },
        },
        "tool_choice.allowed_tools.temper",
    ),
]


@pytest.mark.parametrize(("path", "more", "name"), TOLD, ids=lambda v: str(v)[:70])
def test_what_an_object_holds_in_vain_is_named(
    http: httpx.Client, path: str, more: dict[str, Any], name: str
) -> None:
    answer = http.post(path, json={**BODIES[path], **more})
    assert answer.status_code == 200, answer.text
    assert answer.headers[IGNORED] == name


SILENT: list[tuple[str, dict[str, Any]]] = [
    (RESPONSES, {"reasoning": {"effort": "low", "summary": None}}),
    (RESPONSES, {"reasoning": {"enabled": False}}),
    (CHAT, {"reasoning": {"effort": "low", "exclude": False}}),
    (CHAT, {"stream_options": {"include_obfuscation": False, "include_usage": False}}),
    (RESPONSES, {"stream_options": {"include_obfuscation": False}}),
    (RESPONSES, {"include": ["message.output_text.logprobs"]}),
    (RESPONSES, {"text": {"verbosity": "low", "format": {"type": "text"}}}),
    (RESPONSES, {"text": {"format": {"type": "json_schema", "name": "a", "schema": SCHEMA}}}),
    (CHAT, {"response_format": {"type": "json_object", "schema": SCHEMA, "strict": True}}),
    (
        CHAT,
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "a", "description": "b", "strict": True, "schema": SCHEMA},
            }
        },
    ),
    (CHAT, messages(annotations=[1], temper=None, content=[{**PART, "cache_control": {"a": 1}}])),
    (RESPONSES, items({**SAID, "type": "message", "status": "completed", "id": "msg_1"})),
    (RESPONSES, items({**CALL, "status": "completed"}, {**RESULT, "status": "completed"})),
    (RESPONSES, items({"type": "reasoning", "summary": [], "encrypted_content": None}, HELLO)),
]


@pytest.mark.parametrize(("path", "more"), SILENT, ids=lambda v: str(v)[:70])
def test_what_is_heeded_or_changes_nothing_is_not_named(
    http: httpx.Client, path: str, more: dict[str, Any]
) -> None:
    answer = http.post(path, json={**BODIES[path], **more})
    assert answer.status_code == 200, answer.text
    assert IGNORED not in answer.headers


def test_a_schema_beside_other_fields_holds_the_reply(http: httpx.Client) -> None:
    for key in ("schema", "value"):
        held = {"type": "json_object", key: SCHEMA, "temper": 1}
        answer = http.post(CHAT, json={**BODIES[CHAT], "max_tokens": 60, "response_format": held})
        assert answer.json()["choices"][0]["message"]["content"].strip() == "1"


def test_thinking_can_be_switched_off_in_a_response_too(http: httpx.Client) -> None:
    def tokens(**more: Any) -> int:
        count: int = http.post(RESPONSES, json={**BODIES[RESPONSES], **more}).json()["usage"][
            "input_tokens"
        ]
        return count

    off = tokens(chat_template_kwargs={"enable_thinking": False})
    assert tokens(reasoning={"enabled": False}) == off
    assert tokens(reasoning={"effort": "none"}) == off
