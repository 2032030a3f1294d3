"""``tool_choice`` and ``response_format`` beside tools."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import mlxfill
from mlxfill_model_tiny import held_out_asks
from mlxfill_serve.reply import CallBegun, CallBroken, Content, ReplyReader

if TYPE_CHECKING:
    import openai

HELLO: Any = [{"role": "user", "content": "Hi there."}]


def tool(name: str, **properties: Any) -> Any:
    parameters = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


TOOLS = [
    tool("read_file", path={"type": "string", "maxLength": 12}),
    tool("add", a={"type": "integer", "maximum": 9}, b={"type": "integer", "maximum": 9}),
]


def calls(message: Any) -> list[tuple[str, dict[str, Any]]]:
    made = message.tool_calls or []
    return [(call.function.name, json.loads(call.function.arguments)) for call in made]


@pytest.mark.parametrize("name", ["read_file", "add"])
def test_a_named_function_is_called_once_with_legal_arguments(
    client: openai.OpenAI, name: str
) -> None:
    choice: Any = {"type": "function", "function": {"name": name}}
    answer = client.chat.completions.create(
        model="tiny", messages=HELLO, tools=TOOLS, tool_choice=choice, max_tokens=200
    )
    ((called, arguments),) = calls(answer.choices[0].message)
    assert called == name
    assert set(arguments) == ({"path"} if name == "read_file" else {"a", "b"})
    assert answer.choices[0].finish_reason == "tool_calls"


@pytest.mark.parametrize("parallel", [True, False])
def test_some_function_is_called_where_one_is_required(
    client: openai.OpenAI, *, parallel: bool
) -> None:
    answer = client.chat.completions.create(
        model="tiny",
        messages=HELLO,
        tools=TOOLS,
        tool_choice="required",
        parallel_tool_calls=parallel,
        max_tokens=200,
        temperature=1.5,
        seed=4,
    )
    made = calls(answer.choices[0].message)
    assert made
    assert {name for name, _ in made} <= {"read_file", "add"}
    assert parallel or len(made) == 1


def test_what_would_be_called_anyway_is_called_alike(client: openai.OpenAI) -> None:
    ask = held_out_asks(1)[0]
    settings: Any = {"model": "tiny", "messages": ask.messages, "tools": ask.tools}
    free = client.chat.completions.create(**settings)
    forced = client.chat.completions.create(**settings, tool_choice="required")
    assert calls(forced.choices[0].message) == calls(free.choices[0].message)


def test_with_a_format_beside_tools_a_reply_is_a_call_or_of_that_format(
    client: openai.OpenAI,
) -> None:
    properties = {"ok": {"type": "boolean"}}
    schema: dict[str, Any] = {"type": "object", "properties": properties, "required": ["ok"]}
    schema["additionalProperties"] = False
    shape: Any = {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}
    for seed in range(3):
        answer = client.chat.completions.create(
            model="tiny",
            messages=HELLO,
            tools=TOOLS,
            response_format=shape,
            max_tokens=200,
            temperature=1.0,
            seed=seed,
        )
        message = answer.choices[0].message
        assert calls(message) or set(json.loads(message.content or "")) == {"ok"}


def test_a_function_that_is_not_there_cannot_be_chosen(client: openai.OpenAI) -> None:
    import openai

    choice: Any = {"type": "function", "function": {"name": "write_file"}}
    with pytest.raises(openai.BadRequestError, match="'write_file', which is not among the tools"):
        client.chat.completions.create(
            model="tiny", messages=HELLO, tools=TOOLS, tool_choice=choice
        )


# --- one call only ------------------------------------------------------------------------


def parts_of(text: str, most: int | None) -> list[str]:
    """Names of the calls in a reply, and its content."""
    with mlxfill.load("tiny", plugins=[], config={}) as engine:
        tokenizer = engine.tokenizer
    reader = ReplyReader(tokenizer, TOOLS, "", most=most)
    parts = [part for letter in text for part in reader.feed(letter)] + reader.end()
    told = [part for part in parts if not isinstance(part, CallBroken) and part != Content("")]
    return [part.name if isinstance(part, CallBegun) else part.text for part in told]


def test_calls_beyond_the_one_that_may_be_made_are_not_passed_on() -> None:
    call = '<tool_call>\n{"name": "add", "arguments": {}}\n</tool_call>'
    other = '<tool_call>\n{"arguments": {}, "name": "read_file"}\n</tool_call>'
    for first, second in ((call, other), (other, call)):
        both = [p for p in parts_of(f"{first}\n{second}", None) if p in {"add", "read_file"}]
        assert len(both) == 2
        one = [p for p in parts_of(f"{first}\n{second}", 1) if p in {"add", "read_file"}]
        assert one == both[:1]


def test_space_before_a_call_is_no_content_and_before_a_word_it_is() -> None:
    call = '<tool_call>\n{"name": "add", "arguments": {}}\n</tool_call>'
    assert "".join(parts_of(f" \n\n{call}\n", None)) == "add{}"
    assert "".join(parts_of(" \n\nHello\n", None)) == " \n\nHello\n"
    assert "".join(parts_of(" \n", None)) == " \n"


def test_a_call_that_no_json_can_hold_is_content() -> None:
    for body in (
        '{"arguments": {"path": "\\ud800"}, "name": "read_file"}',
        '{"name": "read_\\ud800", "arguments": {}}',
    ):
        reply = f"<tool_call>\n{body}\n</tool_call>"
        assert "".join(parts_of(reply, None)) == reply


def test_a_marker_in_thoughts_does_not_end_a_reply_of_one_call(
    load_tiny: Any, serve_tiny: Any, script: Any
) -> None:
    thought = "To write </tool_call> would end it.\n"
    script.text = f"{thought}</think>Done."
    with serve_tiny(lambda: script.on(load_tiny())) as served, served.sdk() as client:
        asked: Any = {"messages": HELLO, "tools": TOOLS, "max_tokens": 60}
        answer = client.chat.completions.create(model="tiny", parallel_tool_calls=False, **asked)
    message = answer.choices[0].message
    assert (message.to_dict()["reasoning_content"], message.content) == (thought, "Done.")


@pytest.mark.parametrize("stream", [True, False])
def test_a_reply_without_parallel_calls_ends_with_its_call(
    client: openai.OpenAI, *, stream: bool
) -> None:
    ask = held_out_asks(1)[0]
    settings: Any = {"model": "tiny", "messages": ask.messages, "tools": ask.tools}
    several = client.chat.completions.create(**settings).choices[0]
    settings["parallel_tool_calls"] = False
    if stream:
        with client.chat.completions.stream(**settings) as streamed:
            one = streamed.get_final_completion().choices[0]
    else:
        one = client.chat.completions.create(**settings).choices[0]
    assert calls(one.message) == calls(several.message)[:1]
    assert one.finish_reason == "tool_calls"
