"""A model that thinks first: the schema holds what follows, and the reply comes apart there."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mlxfill
from mlxfill.tool_calls import ReplySections

if TYPE_CHECKING:
    from collections.abc import Iterator

AGE = {
    "type": "object",
    "properties": {"age": {"type": "integer", "minimum": 0, "maximum": 150}},
    "required": ["age"],
    "additionalProperties": False,
}
ASK = [{"role": "user", "content": "Bob is 12. How old is Bob?"}]


@pytest.fixture(scope="module")
def engine() -> Iterator[mlxfill.Engine]:
    with mlxfill.load("tiny", plugins=["constrain"]) as engine:
        yield engine


def test_what_follows_the_reasoning_is_the_json(engine: mlxfill.Engine) -> None:
    result = engine.generate(ASK, schema=AGE)
    assert result.text == f"{result.reasoning}</think>{result.content}"
    assert list(json.loads(result.content)) == ["age"]
    assert result.reasoning
    shown = result.as_dict()
    assert (shown["reasoning"], shown["content"]) == (result.reasoning, result.content)


def test_ids_of_the_prompt_are_as_good_as_messages(engine: mlxfill.Engine) -> None:
    ids = list(engine.check(ASK).ids)
    apart = [engine.generate(asked, schema=AGE) for asked in (ASK, ids)]
    assert apart[0].reasoning == apart[1].reasoning
    assert apart[0].content == apart[1].content


def test_without_reasoning_the_content_is_all(engine: mlxfill.Engine) -> None:
    result = engine.generate("Bob is 12. As JSON: ", schema=AGE)
    assert (result.reasoning, result.content) == ("", result.text)


def test_a_marker_that_a_question_quotes_opens_no_block(engine: mlxfill.Engine) -> None:
    result = engine.generate("What is <think> in HTML? As JSON: ", schema=AGE)
    assert list(json.loads(result.text)) == ["age"]


def test_a_reply_that_is_cut_while_it_thinks_has_no_content(engine: mlxfill.Engine) -> None:
    result = engine.generate(ASK, max_tokens=3)
    assert (result.reasoning, result.content) == (result.text, "")


def test_calls_are_content_and_what_they_hold_is_no_reasoning(engine: mlxfill.Engine) -> None:
    name = {"type": "string"}
    call = {"name": "read_file", "parameters": {"type": "object", "properties": {"path": name}}}
    tools = [{"type": "function", "function": call}]
    ask = [{"role": "user", "content": "Read src/page.py please."}]
    result = engine.generate(ask, tools=tools, max_tokens=200)
    assert result.tool_calls
    assert result.text == f"{result.reasoning}</think>{result.text.partition('</think>')[2]}"
    assert result.content == result.text.partition("</think>")[2].lstrip("\n")


CALL = '{"name": "f", "arguments": {"a": 1}}'


@pytest.mark.parametrize(
    ("body", "calls"),
    [
        (CALL, [json.loads(CALL)]),
        ('{"name": "f"}', [{"name": "f", "arguments": {}}]),
        ('{"name": "f", "arguments": "{}"}', [{"name": "f", "arguments": {}}]),
        (f"[{CALL}, {CALL}]", [json.loads(CALL)] * 2),
        (f"[{CALL}, 3]", []),
        (CALL.replace("1", '"<tool_call>"'), [{"name": "f", "arguments": {"a": "<tool_call>"}}]),
        ('{"arguments": {}}', []),
        ('{"name": "f", "arguments": 3}', []),
        ('{"name": "f", "arguments": {"a": "\\ud800"}}', []),
        ('{"name": "f", "arguments": {"a": NaN}}', []),
    ],
)
def test_calls_are_those_with_a_name_and_arguments_in_json(
    engine: mlxfill.Engine, body: str, calls: list[Any]
) -> None:
    assert written(engine, f"<tool_call>{body}</tool_call>" * 2).tool_calls == calls * 2


def test_a_call_within_reasoning_is_none(engine: mlxfill.Engine) -> None:
    call = f"<tool_call>{CALL}</tool_call>"
    result = written(engine, f"<think>I could {call}</think>No.")
    assert (result.reasoning, result.content, result.tool_calls) == (f"I could {call}", "No.", [])
    assert len(written(engine, f"<think>I could {call}</think>{call}").tool_calls) == 1


def written(engine: mlxfill.Engine, text: str) -> mlxfill.Result:
    """A reply that says this, its markers as the tokens that they are."""
    added = {str(t): at for at, t in engine.tokenizer.added_tokens_decoder.items()}
    pieces = re.split(f"({'|'.join(map(re.escape, added))})", text)
    parts = [f"<[{added[p]}]>" if p in added else json.dumps(p) for p in pieces if p]
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    quick = {"enable_thinking": False}
    grammar = {"lark": f"start: {' '.join(parts)}"}
    return engine.generate(ASK, tools=tools, schema=grammar, template_options=quick)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(["<think>", "</think>", "<th", "ink>", "a", "\n"]), max_size=12))
def test_sections_do_not_depend_on_how_the_text_comes(texts: list[str]) -> None:
    def told(pieces: list[str], section: str) -> str:
        tokenizer: Any = Markers()
        sections = ReplySections(tokenizer, "", tools=False)
        parts = [part for piece in pieces for part in sections.feed(piece)]
        return "".join(text for name, text in [*parts, sections.end()] if name == section)

    whole = "".join(texts)
    for section in ("reasoning", "normal"):
        assert told(texts, section) == told([whole], section) == told([*whole], section)
    if "<think>" not in whole:
        assert told(texts, "normal") == whole


class Markers:
    """What mlx-lm's wrapper says of a model that thinks."""

    has_thinking, has_tool_calling = True, False
    think_start, think_end = "<think>", "</think>"
    response_initial_state, structural_markers = None, ()
    response_transitions: ClassVar[dict[str, Any]] = {}
