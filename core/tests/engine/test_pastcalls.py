"""What a model has called in earlier turns is told to it, whatever form its template asks for."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from mlx_lm.tokenizer_utils import TokenizerWrapper

from mlxfill import Engine, Fault, Request, TemplateError
from mlxfill_testing import engine_with, shared_model, tiny_tokenizer

TURN = (
    "{{% for m in messages %}}<user>{{{{ m.content or '' }}}}"
    "{{% if m.tool_calls and {when} %}}{{% for c in m.tool_calls %}}"
    "<tool_call>{{{{ {call} }}}}{{% endfor %}}{{% endif %}}{{% endfor %}}<reply>"
)
ALWAYS = "true"
OBJECT = "c.function.name ~ (c.function.arguments | tojson)"
CHAINED = "c.function.name + c.function.arguments"
PRINTED = "c.function.name ~ c.function.arguments"
PIECES = "c.function.name ~ c.function.arguments.items() | map('join', '=') | join(',')"

ARGUMENTS = {"city": "Zürich", "days": 3, "more": {"yes": True}}
AS_TEXT = json.dumps(ARGUMENTS, ensure_ascii=False)


def conversation(arguments: Any, content: Any = "") -> list[dict[str, Any]]:
    function = {"name": "forecast", "arguments": arguments}
    call = {"type": "function", "id": "call_1", "function": function}
    return [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": content, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
    ]


def engine_writing(template: str) -> Engine:
    """An engine whose tokenizer has this chat template."""
    raw: Any = copy.deepcopy(tiny_tokenizer()._tokenizer)
    raw.chat_template = template
    return engine_with(shared_model("llama"), tokenizer=TokenizerWrapper(raw))


def request(template: str, messages: list[dict[str, Any]]) -> Request:
    with engine_writing(template) as engine:
        return engine.stream(messages, max_tokens=1).request


@pytest.mark.parametrize("content", ["", None])
@pytest.mark.parametrize("arguments", [AS_TEXT, ARGUMENTS], ids=["text", "object"])
@pytest.mark.parametrize("call", [OBJECT, CHAINED, PRINTED])
def test_a_call_is_told_in_every_form_that_a_template_takes(
    call: str, arguments: Any, content: str | None
) -> None:
    template = TURN.format(call=call, when=ALWAYS)
    told = request(template, conversation(arguments, content)).prompt_text
    _, _, written = told.partition("<tool_call>forecast")
    assert json.loads(written[: written.index("<user>")]) == ARGUMENTS
    assert told.endswith("<user>rain<reply>")


@pytest.mark.parametrize("call", [OBJECT, PIECES])
def test_where_objects_are_taken_they_stay(call: str) -> None:
    asked = request(TURN.format(call=call, when=ALWAYS), conversation(AS_TEXT))
    assert asked.messages is not None
    assert asked.messages[1]["tool_calls"][0]["function"]["arguments"] == ARGUMENTS
    assert asked.messages[1]["content"] == ""


def test_what_a_turn_says_beside_its_call_stays() -> None:
    template = TURN.format(call=CHAINED, when=ALWAYS)
    assert f"<user>Let me see.<tool_call>forecast{AS_TEXT}" in (
        request(template, conversation(ARGUMENTS, "Let me see.")).prompt_text
    )


def test_a_template_that_writes_no_calls_gets_the_messages_as_they_are() -> None:
    asked = request(TURN.format(call=OBJECT, when="false"), conversation(AS_TEXT))
    assert asked.messages is not None
    assert asked.messages[1]["tool_calls"][0]["function"]["arguments"] == ARGUMENTS
    assert asked.prompt_text == "<user>hello<user><user>rain<reply>"


def test_calls_that_a_template_leaves_out_are_told_once() -> None:
    said = "the chat template writes no tool calls: the model sees none of earlier turns"
    notice = Fault("engine", "messages", said, notice=True)
    messages = conversation(AS_TEXT)
    with engine_writing(TURN.format(call=OBJECT, when="false")) as engine:
        assert engine.generate(messages[:1], max_tokens=1).faults == []
        engine.check(messages)  # its caller hears nothing
        assert engine.generate(messages, max_tokens=1).faults == [notice]
        assert engine.generate(messages, max_tokens=1).faults == []
    for call in (OBJECT, CHAINED):
        with engine_writing(TURN.format(call=call, when=ALWAYS)) as engine:
            assert engine.generate(messages, max_tokens=1).faults == []


def test_arguments_that_are_no_json_are_named_where_they_are_refused() -> None:
    with pytest.raises(TemplateError) as error:
        request(TURN.format(call=PIECES, when=ALWAYS), conversation('{"city": '))
    said = "; the arguments of the call of 'forecast' in message 1 are no JSON object"
    assert str(error.value).endswith(said)
    told = request(TURN.format(call=CHAINED, when=ALWAYS), conversation('{"city": ')).prompt_text
    assert '<tool_call>forecast{"city": <user>rain' in told
