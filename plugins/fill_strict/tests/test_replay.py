"""Replies are replayed token by token: whatever is offered must be what the reply goes on with."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

MARKED = [
    "channels",
    "closing_turns",
    "deepseek",
    "gemma",
    "glm",
    "hermes",
    "kimi",
    "llama_json",
    "llama_python_tag",
    "minimax",
    "mistral",
    "mistral_args",
    "pythonic",
    "qwen3_coder",
    "thinking_xml",
]
ONE_CALL_ONLY = {"channels", "llama_json", "llama_python_tag"}
CLOSED = {"additionalProperties": False}
END_OF_VALUE = {
    "glm": "</arg_value>",
    "qwen3_coder": "</parameter>\n",
    "thinking_xml": "</parameter>\n",
}
"""What ends a value in formats that escape nothing: no value holds it, whoever reads the call."""

QUOTES = [
    "</parameterization>",
    "</tool_call>",
    '<tool_call>\n{"name": "get", "arguments": {"path": "x"}}\n</tool_call>',
    "```\n<tool_call>\n<function=get>\n<parameter=path>\nx\n</parameter>\n</function>\n</tool_call>\n```",
    "<function=get>\n<parameter=path>\nx\n</parameter>",
    "[TOOL_CALLS]get[ARGS]{",
    '{"name": "get", "parameters": {"path": "x"}}',
    "<|python_tag|>get.call(",
    "<think>\n</think>",
    "C:\\",
    '"',
    "\\",
]
TEXTS = (
    st.text(max_size=8)
    | st.text(st.characters(max_codepoint=127), max_size=6)
    | st.sampled_from(QUOTES)
    | st.tuples(st.sampled_from(QUOTES), st.text(max_size=4)).map("".join)
)
VALUES = st.recursive(
    TEXTS | st.integers(-99, 9999) | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=4,
)


def tool_sets(make_tool: Any) -> list[Any]:
    return [
        [make_tool("get", "path", **CLOSED), make_tool("give", "way", **CLOSED)],
        [
            make_tool("get", "path", **CLOSED),
            make_tool("get_prompt", "orderId", "orderName", required=[], **CLOSED),
        ],
        [make_tool("only", "path")],
        [make_tool("a", "x", required=[]), make_tool("now", **CLOSED), make_tool("b", "x", "y")],
        [make_tool("日本", "キー", **CLOSED)],
        [make_tool("größe", "maß", **CLOSED), make_tool("größer", "maß", "ort", **CLOSED)],
    ]


@st.composite
def arguments_of(draw: st.DrawFn, tool: Any) -> dict[str, Any]:
    schema = tool["function"]["parameters"]
    found = {}
    if "additionalProperties" not in schema and draw(st.booleans()):
        found = draw(st.dictionaries(TEXTS, VALUES, max_size=2))
    for key in draw(st.permutations(list(schema["properties"]))):
        if key in schema["required"] or draw(st.booleans()):
            found[key] = draw(TEXTS)
    return found


@st.composite
def calls_of(draw: st.DrawFn, tools: Any, most: int) -> list[tuple[str, dict[str, Any]]]:
    chosen = draw(st.lists(st.sampled_from(tools), min_size=1, max_size=most))
    return [(tool["function"]["name"], draw(arguments_of(tool))) for tool in chosen]


@pytest.mark.parametrize("special", [True, False], ids=["special tokens", "plain text"])
@pytest.mark.parametrize("name", MARKED)
@settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_offers_are_what_a_rendered_call_goes_on_with(
    families: Any, make_tool: Any, name: str, data: st.DataObject, *, special: bool
) -> None:
    tools = data.draw(st.sampled_from(tool_sets(make_tool)))
    calls = data.draw(calls_of(tools, 1 if name in ONE_CALL_ONLY else 3))
    end = END_OF_VALUE.get(name)
    if end and any(end in str(value) for _, given in calls for value in given.values()):
        return
    request = families.request(families.tokenizer(name, special=special), tools)
    reply = families.reply(request, families.calls(name, *calls))
    for offer in families.replay(request, reply).offers:
        assert reply[offer.at : offer.at + len(offer.ids)] == offer.ids


@pytest.mark.parametrize("name", MARKED)
@settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_nothing_is_offered_in_prose_that_quotes_calls(
    families: Any, make_tool: Any, name: str, data: st.DataObject
) -> None:
    tools = data.draw(st.sampled_from(tool_sets(make_tool)))
    request = families.request(families.tokenizer(name), tools)
    call = request.tokenizer.decode(
        families.reply(request, families.calls(name, *data.draw(calls_of(tools, 1))))
    )
    before = data.draw(st.sampled_from(["So: ", "```\n", '"', "> ", "1. ", "<code>"]))
    answer = {"role": "assistant", "content": before + call + " is how."}
    assert families.replay(request, families.reply(request, answer)).offers == []


@pytest.mark.parametrize("name", ["hermes", "qwen3_coder", "thinking_xml", "glm", "mistral_args"])
def test_every_call_of_a_reply_is_filled(families: Any, make_tool: Any, name: str) -> None:
    tools = [make_tool("read_file", "path", **CLOSED), make_tool("list_dir", "dir", **CLOSED)]
    request = families.request(families.tokenizer(name), tools)
    calls = [("read_file", {"path": "a.py"}), ("list_dir", {"dir": "src"})] * 2
    reply = families.reply(request, families.calls(name, *calls))
    spans = families.replay(request, reply).spans
    assert [offer.origin for offer in spans].count("schema") == 4


@pytest.mark.parametrize("name", ["llama_json", "deepseek", "kimi", "pythonic", "mistral"])
def test_without_markers_around_each_call_the_first_one_is_filled(
    families: Any, make_tool: Any, name: str
) -> None:
    tools = [make_tool("read_file", "path", **CLOSED), make_tool("list_dir", "dir", **CLOSED)]
    request = families.request(families.tokenizer(name), tools)
    calls = [("read_file", {"path": "a.py"}), ("list_dir", {"dir": "src"})]
    reply = families.reply(
        request, families.calls(name, *calls[: 1 if name in ONE_CALL_ONLY else 2])
    )
    assert families.replay(request, reply).offers


def test_a_real_tokenizer_is_filled_as_it_writes(families: Any, make_tool: Any, real: str) -> None:
    for name in ("hermes", "qwen3_coder"):
        tokenizer = families.tokenizer(name, real)
        for tools in tool_sets(make_tool)[:3]:
            request = families.request(tokenizer, tools)
            for value in (
                "src/main.py",
                "",
                "\n",
                "/etc",
                '"',
                "7",
                "日本",
                "{",
                "</parameterization>",
            ):
                function = tools[0]["function"]
                given = dict.fromkeys(function["parameters"]["properties"], value)
                reply = families.reply(request, families.calls(name, (function["name"], given)))
                offers = families.replay(request, reply).offers
                assert offers
                for offer in offers:
                    assert reply[offer.at : offer.at + len(offer.ids)] == offer.ids


@pytest.mark.parametrize(
    ("schema", "values"),
    [
        ({"type": "integer"}, (7, -5)),
        ({"type": "object"}, ({}, {"a": 1})),
        ({"type": ["array", "null"]}, ([], ["a"], None)),
        ({}, (-3, True, None, ["a"], {})),
        ({"enum": [True, "a"]}, (True, "a")),
    ],
)
def test_a_value_may_share_a_token_with_what_stands_before_it(
    families: Any, make_tool: Any, real: str, schema: dict[str, Any], values: tuple[Any, ...]
) -> None:
    tool = make_tool("get_it", "count", **CLOSED)
    tool["function"]["parameters"]["properties"]["count"] = schema
    request = families.request(families.tokenizer("gemma", real), [tool])
    for value in values:
        reply = families.reply(request, families.calls("gemma", ("get_it", {"count": value})))
        offers = families.replay(request, reply).offers
        assert offers
        for offer in offers:
            assert reply[offer.at : offer.at + len(offer.ids)] == offer.ids
