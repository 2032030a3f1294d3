"""Chat messages in all forms of OpenAI's format, and what is said of others."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from mlx_lm.tokenizer_utils import TokenizerWrapper

import mlxfill
from mlxfill import InputError, TemplateError
from mlxfill_testing import engine_with, shared_model, tiny_tokenizer


def read(*messages: Any) -> tuple[int, ...]:
    """The prompt that an engine makes of messages."""
    with engine_with(shared_model("llama")) as engine:
        return engine.check(list(messages)).ids


@pytest.mark.parametrize("kind", ["text", "input_text", "output_text"])
def test_parts_of_text_are_joined(kind: str) -> None:
    parts = [{"type": kind, "text": "good "}, {"type": kind, "text": "day"}]
    assert read({"role": "user", "content": parts}) == read({"role": "user", "content": "good day"})


def test_no_content_is_an_empty_one() -> None:
    hello = {"role": "user", "content": "hello"}
    nothing, empty = ({"role": "assistant", "content": content} for content in (None, ""))
    assert read(hello, nothing, hello) == read(hello, empty, hello)


def test_arguments_of_calls_become_objects_and_the_messages_stay() -> None:
    def said(arguments: Any) -> list[dict[str, Any]]:
        call = {"type": "function", "function": {"name": "go", "arguments": arguments}}
        return [{"role": "assistant", "content": "", "tool_calls": [call]}]

    given = said('{"to": "x"}')
    assert mlxfill.for_template(given) == said({"to": "x"})
    assert given == said('{"to": "x"}')
    for other in ({"to": "x"}, "to x", None):
        assert mlxfill.for_template(said(other)) == said(other)
    for nothing in ("{}", "", " \n"):  # clients that gather a stream keep the empty text
        assert mlxfill.for_template(said(nothing)) == said({})


THOUGHTS: list[dict[str, Any]] = [
    {"reasoning_content": "so it is"},
    {"reasoning": "so it is"},
    {"thinking": "so it is"},
    {"reasoning_details": [{"type": "reasoning.text", "text": "so it is", "signature": "x"}]},
    {"reasoning_details": [{"type": "reasoning.summary", "summary": "so it is"}]},
    {"reasoning_details": [{"text": "so "}, {"type": "reasoning.encrypted"}, {"text": "it is"}]},
    {"thinking_blocks": [{"type": "thinking", "thinking": "so it is"}]},
    {"thinking_blocks": [{"type": "redacted_thinking", "data": "x"}], "reasoning": "so it is"},
    {"reasoning": "so it is", "reasoning_content": "so it is", "thinking": ""},
    {"reasoning": "so it is", "reasoning_details": [{"summary": "so"}], "reasoning_content": None},
]


@pytest.mark.parametrize("thought", THOUGHTS, ids=str)
def test_thoughts_reach_the_template_under_whatever_name(thought: dict[str, Any]) -> None:
    (told,) = mlxfill.for_template([{"role": "assistant", "content": "yes", **thought}])
    assert told["reasoning_content"] == "so it is"
    assert told["content"] == "yes"


@pytest.mark.parametrize(
    ("thought", "said"),
    [
        ({"reasoning": "a", "reasoning_content": "b"}, "reasoning_content and reasoning differ"),
        ({"thinking": "a", "reasoning": "b"}, "reasoning and thinking differ"),
        ({"reasoning": {"text": "a"}}, "reasoning must be a string"),
        ({"reasoning_details": "a"}, "reasoning_details must be a list of parts, not 'a'"),
        ({"reasoning_details": ["a"]}, "reasoning_details must be a list of parts"),
        ({"thinking_blocks": [{"thinking": 5}]}, "thinking must be strings, not [5]"),
    ],
)
def test_thoughts_that_cannot_be_told_are_named(thought: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=r"^message 0: ") as error:
        mlxfill.for_template([{"role": "assistant", "content": "yes", **thought}])
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ({"role": "", "content": "a"}, " has no role: {'role': '', 'content': 'a'}"),
        ({"role": "user", "content": 5}, ": content must be a string or text parts, not 5"),
        ({"role": "user", "content": {}}, ": content must be a string or text parts, not {}"),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": {}}]},
            ": content, part 0 is of the type 'image_url': only text is understood",
        ),
        (
            {"role": "user", "content": [{"type": "text", "text": "a"}, "b"]},
            ": content, part 1 must be a mapping with type and text, not 'b'",
        ),
        (
            {"role": "user", "content": [{"type": "text", "text": None}]},
            ": content, part 0: text must be a string, not None",
        ),
        ({"content": "x"}, " has no role: {'content': 'x'}"),
        ({"role": 5, "content": "x"}, ": role must be a string, not 5"),
        ({"role": "tool", "content": "x", "name": []}, ": name must be a string, not []"),
        (
            {"role": "assistant", "tool_calls": {"name": "go"}},
            ": tool_calls must be a list of calls, not {'name': 'go'}",
        ),
        ({"role": "assistant", "tool_calls": ["go"]}, ": tool_calls must be a list of calls"),
    ],
)
def test_other_forms_are_one_line_with_number_and_key(message: Any, said: str) -> None:
    with pytest.raises(InputError) as caught:
        read({"role": "user", "content": "hello"}, message)
    assert str(caught.value).startswith(f"message 1{said}")
    assert "\n" not in str(caught.value)


WANTS_TEXT = (
    "{% for m in messages %}{% if m.role == 'assistant' %}<reply>{{ m.content }}"
    "{% elif m.role == 'odd' %}{{ raise_exception('odd') }}"
    "{% else %}<user>{{ 'said: ' + m.content }}{% endif %}<end>{% endfor %}<reply>"
)
"""As many templates: of a reply it takes anything, of others a content that can be added to."""
HELLO, BARE, REPLY = {"role": "user", "content": "hello"}, {"role": "user"}, {"role": "assistant"}
CALL = {"type": "function", "function": {"name": "go", "arguments": "{}"}}


def told(*messages: Any) -> str:
    """What a model with that template says about messages; "" when it takes them."""
    raw: Any = copy.deepcopy(tiny_tokenizer()._tokenizer)
    raw.chat_template = WANTS_TEXT
    with engine_with(shared_model("llama"), tokenizer=TokenizerWrapper(raw)) as engine:
        try:
            engine.check(list(messages))
        except (InputError, TemplateError) as error:
            return str(error)
    return ""


@pytest.mark.parametrize(
    ("messages", "number"),
    [
        ([BARE], 0),
        ([{"role": "user", "text": "hello"}], 0),
        ([HELLO, REPLY, BARE], 2),
        ([HELLO, REPLY, BARE, REPLY, BARE, HELLO], 2),
        ([HELLO, {**REPLY, "tool_calls": [CALL]}, {"role": "tool"}, REPLY, BARE], 2),
        # Two of the system become one: the number is the caller's.
        ([{"role": "system", "content": "a"}, {"role": "developer", "content": "b"}, BARE], 2),
    ],
)
def test_a_message_without_the_content_that_the_template_wants(
    messages: list[Any], number: int
) -> None:
    assert told(*messages) == (
        f"message {number} has no content, without which the chat template does not take it: "
        "give its text, or null for none"
    )


def test_what_a_template_takes_needs_no_content() -> None:
    assert told(HELLO, REPLY, HELLO) == ""
    assert told(HELLO, {**REPLY, "tool_calls": [CALL]}, HELLO) == ""
    assert told(HELLO, {**REPLY, "reasoning_content": "so"}, HELLO) == ""
    assert told({**BARE, "content": None}) == ""
    assert read(BARE) == read({**BARE, "content": ""})


def test_what_else_a_template_refuses_is_not_laid_to_a_content() -> None:
    refusal = "the chat template refused the messages: odd"
    assert told({"role": "odd"}, BARE) == told({"role": "odd", "content": "a"}) == refusal


@pytest.mark.parametrize("prompt", [b"abc", bytearray(b"abc"), memoryview(b"abc")])
def test_bytes_are_no_ids(prompt: Any) -> None:
    with (
        engine_with(shared_model("llama")) as engine,
        pytest.raises(InputError, match=r"a prompt is a string, ids or messages, not [a-z]+$"),
    ):
        engine.generate(prompt)


def test_tools_that_no_template_can_write_are_refused_in_one_line() -> None:
    """They are what Python's recursion limit is for; where they are fewer they are written."""
    raw: Any = copy.deepcopy(tiny_tokenizer()._tokenizer)
    raw.chat_template = "{% for tool in tools %}{{ tool | tojson }}{% endfor %}"
    tokenizer = TokenizerWrapper(raw)
    with engine_with(shared_model("llama"), tokenizer=tokenizer) as engine:
        for depth in (10, 5000):
            parameters: dict[str, Any] = {"type": "string"}
            for _ in range(depth):
                parameters = {"type": "object", "properties": {"a": parameters}}
            tool = {"type": "function", "function": {"name": "f", "parameters": parameters}}
            if depth == 10:
                engine.generate([HELLO], tools=[tool], max_tokens=1)
                continue
            with pytest.raises(
                TemplateError, match=r"the tools are nested too deeply \(flatten them\)"
            ):
                engine.generate([HELLO], tools=[tool], max_tokens=1)
