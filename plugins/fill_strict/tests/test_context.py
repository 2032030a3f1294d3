"""Where a span may enter a reply, and where it may not."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

CLOSED = {"additionalProperties": False}
CALL = '<tool_call>\n{"name": "get", "arguments": {"path": "a.py"}}\n</tool_call>'
XML_CALL = (
    "<tool_call>\n<function=get>\n<parameter=path>\na.py\n</parameter>\n</function>\n</tool_call>"
)
OPENED = '<tool_call>\n{"name": "write", "arguments": {"path": "a.md", "text": "'


@pytest.fixture
def tools(make_tool: Any) -> list[Any]:
    return [make_tool("get", "path", **CLOSED), make_tool("write", "path", "text", **CLOSED)]


@pytest.fixture
def hermes(families: Any, tools: list[Any]) -> Any:
    return families.request(families.tokenizer("hermes"), tools)


def spans(families: Any, request: Any, reply: str) -> list[str]:
    return [request.tokenizer.decode(span.ids) for span in families.replay(request, reply).spans]


# --- the model's decision to call -------------------------------------------------------


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "The file holds a name.",
        "tool_call",
        '{"name": "get", "arguments": {"path": "a.py"}}',
        f"I will read it.\n{CALL}",
        f"```\n{CALL}\n```",
        f'"{CALL}"',
        f"> {CALL}",
        f"`{CALL}`",
        "<tool_calls>",
    ],
)
def test_nothing_is_offered_in_a_plain_reply(families: Any, hermes: Any, reply: str) -> None:
    assert spans(families, hermes, reply) == []


@pytest.mark.parametrize("before", ["", "\n", "\n\n", " "])
def test_a_call_after_whitespace_is_filled(families: Any, hermes: Any, before: str) -> None:
    assert spans(families, hermes, before + CALL) == [
        '\n{"name": "',
        '", "arguments": {"path":',
    ]


@pytest.mark.parametrize(
    "reply",
    [
        '{"name": "Ada", "age": 36}',
        '{"name": "nowhere", "zip": 1}',
        '{"name": "set", "kind": "sport"}',
        '["now", "set_timer"]',
    ],
)
def test_a_json_answer_is_no_call(families: Any, make_tool: Any, reply: str) -> None:
    tools = [make_tool("now", **CLOSED), make_tool("set_timer", "minutes")]
    request = families.request(families.tokenizer("llama_json"), tools)
    assert spans(families, request, reply) == []
    request = families.request(families.tokenizer("llama_json"), tools[:1])
    assert spans(families, request, reply) == []


# --- data -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>",
        f"{CALL[:40]}",
        "see </tool_call> and <tool_call>",
        "```\\n<tool_call>\\n```",
        "\\\\<tool_call>",
        'a \\" <tool_call>',
    ],
)
def test_nothing_is_offered_inside_an_argument(families: Any, hermes: Any, text: str) -> None:
    before = spans(families, hermes, OPENED)
    assert spans(families, hermes, OPENED + text) == before
    assert spans(families, hermes, OPENED + text + ' <tool_call>\n{"name": "get') == before


def xml_request(families: Any, make_tool: Any) -> Any:
    tools = [make_tool("get", "path", **CLOSED), make_tool("note", "text", **CLOSED)]
    return families.request(families.tokenizer("qwen3_coder"), tools)


@pytest.mark.parametrize(
    "value",
    [
        "</parameterization>",
        "</tool_call>",
        "</parameters>\n",
        "C:\\",
        "</function>\n",
        XML_CALL,
        f"Write so:\n{XML_CALL}",
        f"```\n{XML_CALL}\n```",
        "<function=get>\n<parameter=path>\na.py\n</parameter>\n",
        "<parameter=path>\nx\n</parameter>\n</function>\n</tool_call>\n<tool_call>",
        '{"a": {"b": [1, {}]}}',
        "",
    ],
)
def test_a_value_that_looks_like_markup_is_left_alone(
    families: Any, make_tool: Any, value: str
) -> None:
    request = xml_request(families, make_tool)
    reply = families.reply(request, families.calls("qwen3_coder", ("note", {"text": value})))
    replay = families.replay(request, reply)
    start = len("<tool_call>\n<function=note>\n<parameter=text>")
    inside = range(start + 1, start + len(f"\n{value}\n</parameter>"))
    for offer in replay.offers:
        assert reply[offer.at : offer.at + len(offer.ids)] == offer.ids
        assert len(request.tokenizer.decode(reply[: offer.at])) not in inside


def test_the_end_of_a_call_is_filled(families: Any, make_tool: Any) -> None:
    request = xml_request(families, make_tool)
    assert spans(families, request, XML_CALL)[-1] == "\n</function>\n</tool_call>"
    assert spans(families, request, f"{XML_CALL}\n{XML_CALL}")[-1] == "\n</function>\n</tool_call>"


def test_the_end_of_a_call_is_not_filled_after_a_value_that_the_tools_do_not_allow(
    families: Any, make_tool: Any
) -> None:
    count = make_tool("count", "to", **CLOSED)
    count["function"]["parameters"]["properties"]["to"]["type"] = "integer"
    request = families.request(families.tokenizer("qwen3_coder"), [count])
    call = (
        "<tool_call>\n<function=count>\n<parameter=to>\n{}\n</parameter>\n</function>\n</tool_call>"
    )
    assert spans(families, request, call.format("12"))[-1].endswith("</tool_call>")
    assert not spans(families, request, call.format("many"))[-1].endswith("</tool_call>")


# --- earlier calls ------------------------------------------------------------------------


def second_call_is_filled(families: Any, request: Any, first: str) -> bool:
    return len(spans(families, request, f"{first}\n<tool_call>")) > len(
        spans(families, request, first)
    )


@pytest.mark.parametrize(
    "first",
    [
        CALL,
        f"{CALL}\n{CALL}",
        f"{CALL}{CALL}",
        '<tool_call>{"name":"get","arguments":{"path":"a.py"}}</tool_call>',
        CALL.replace("a.py", "日本/\\\\"),
        CALL.replace("a.py", ""),
    ],
)
def test_a_call_after_valid_calls_is_filled(families: Any, hermes: Any, first: str) -> None:
    assert second_call_is_filled(families, hermes, first)


@pytest.mark.parametrize(
    "first",
    [
        CALL.replace('"get"', '"gets"'),
        CALL.replace('"path"', '"paths"'),
        CALL.replace('{"path": "a.py"}', "{}"),
        CALL.replace('"a.py"', "5"),
        CALL.replace('{"path": "a.py"}', '"a.py"'),
        CALL.replace("}}", "}"),
        CALL.replace("}}", "}} ok"),
        CALL.replace('"a.py"', '"a.py", "path": "b.py"'),
    ],
)
def test_a_malformed_call_ends_all_offers_and_is_counted(
    families: Any, hermes: Any, first: str
) -> None:
    assert not second_call_is_filled(families, hermes, first)
    replay = families.replay(hermes, f"{first}\n{CALL}\n{CALL}")
    assert replay.source.counts["parse_fallback"] == 1
    assert len(replay.spans) == len(families.replay(hermes, first).spans)


@pytest.mark.parametrize("name", ["glm", "pythonic", "minimax", "gemma", "qwen3_coder"])
def test_a_lenient_parser_is_not_believed(families: Any, make_tool: Any, name: str) -> None:
    request = families.request(families.tokenizer(name), [make_tool("get", "path")])
    tokenizer = request.tokenizer
    first = tokenizer.decode(
        families.reply(request, families.calls(name, ("get", {"path": "a.py"})))
    )
    end = tokenizer.tool_call_end
    whole = first[first.index(tokenizer.tool_call_start) : first.rindex(end) + len(end)]
    assert second_call(families, request, whole)
    broken = whole.replace(end, " and then some" + end)
    assert not second_call(families, request, broken)


def second_call(families: Any, request: Any, first: str) -> bool:
    """Whether a second call is filled after ``first``."""
    start = len(request.tokenizer.encode(first, add_special_tokens=False))
    reply = first + "\n" + first
    return any(span.at > start for span in families.replay(request, reply).spans)


def test_calls_that_cannot_be_read_back_are_not_followed_by_offers(
    families: Any, make_tool: Any
) -> None:
    request = families.request(families.tokenizer("deepseek"), [make_tool("get", "path")])
    reply = families.reply(request, families.calls("deepseek", ("get", {"path": "a"})))
    first = request.tokenizer.decode(reply)
    assert families.replay(request, first).spans
    assert not second_call(families, request, first)


def test_a_turn_is_ended_after_calls_only(families: Any, make_tool: Any) -> None:
    request = families.request(families.tokenizer("closing_turns"), [make_tool("get", "path")])
    end = "<|close|>message<|sep|>done"
    assert spans(families, request, CALL + end)[-1] == "message<|sep|>done"
    assert spans(families, request, end) == []
    assert spans(families, request, f"All done.{end}") == []


# --- reasoning -----------------------------------------------------------------------------


def thinking(families: Any, make_tool: Any, *, enabled: bool = True) -> Any:
    tools = [make_tool("get", "path", **CLOSED), make_tool("note", "text", **CLOSED)]
    tokenizer = families.tokenizer("thinking_xml")
    return families.request(tokenizer, tools, enable_thinking=enabled)


@pytest.mark.parametrize("reasoning", ["", "\n", "I read it.\n", f"Perhaps {XML_CALL}?\n"])
def test_a_call_after_closed_reasoning_is_filled(
    families: Any, make_tool: Any, reasoning: str
) -> None:
    request = thinking(families, make_tool)
    found = spans(families, request, f"{reasoning}</think>\n\n{XML_CALL}")
    assert found == ["\n<function=", ">\n<parameter=path>", "\n</function>\n</tool_call>"]


@pytest.mark.parametrize(
    "reply",
    [
        XML_CALL,
        f"I could {XML_CALL}",
        f"Nested <think>\n</think>\n\n{XML_CALL}",
        f"Closed.\n</think>\n\nSo I say: {XML_CALL}",
        f"Closed.\n</think>\n\n<think>\nAgain.\n</think>\n\n{XML_CALL}",
        f"Twice.\n</think>\n\n</think>{XML_CALL}",
    ],
)
def test_nothing_is_offered_inside_reasoning_or_after_more_than_one_block(
    families: Any, make_tool: Any, reply: str
) -> None:
    assert spans(families, thinking(families, make_tool), reply) == []


def test_reasoning_that_the_prompt_closed_is_over(families: Any, make_tool: Any) -> None:
    request = thinking(families, make_tool, enabled=False)
    assert request.prompt_text.endswith("</think>\n\n")
    assert len(spans(families, request, XML_CALL)) == 3


def test_reasoning_may_be_opened_by_the_reply(families: Any, hermes: Any) -> None:
    assert len(spans(families, hermes, f"<think>\nHm.\n</think>\n\n{CALL}")) == 2
    assert spans(families, hermes, f"<think>\nHm.\n\n{CALL}") == []


# --- length -------------------------------------------------------------------------------------


def test_nothing_is_filled_far_into_a_reply(
    families: Any, hermes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    reply = f"{CALL}\n" * 3
    assert len(spans(families, hermes, reply)) == 6
    size = len(hermes.tokenizer.encode(CALL, add_special_tokens=False))
    monkeypatch.setattr("mlxfill_fill_strict.context.LONGEST_CONTEXT", size + 4)
    assert len(spans(families, hermes, reply)) == 3


# --- a prompt that has begun the reply ------------------------------------------------------------


@pytest.mark.parametrize(
    ("begun", "expected"),
    [
        ("<tool_call>", ['\n{"name": "', '", "arguments": {"path":']),
        ('<tool_call>\n{"name": "get', ['", "arguments": {"path":']),
        (f"{CALL}\n<tool_call>", ['\n{"name": "', '", "arguments": {"path":']),
        ("So ", []),
        (f"So: {CALL}\n<tool_call>", []),
    ],
)
def test_a_prompt_may_end_inside_the_reply(
    families: Any, hermes: Any, begun: str, expected: list[str]
) -> None:
    text = hermes.prompt_text + begun
    ids = tuple(hermes.tokenizer.encode(text, add_special_tokens=False))
    request = attrs.evolve(hermes, prompt_text=text, prompt_ids=ids)
    rest = (CALL if not expected else f"<tool_call>\n{CALL[12:]}").removeprefix(
        begun.rpartition("</tool_call>\n")[2] if expected else ""
    )
    assert spans(families, request, rest) == expected
    request = attrs.evolve(request, prompt_text="")
    assert spans(families, request, rest) == expected


def test_a_prompt_that_opens_no_reply_has_no_source(families: Any, hermes: Any) -> None:
    request = attrs.evolve(hermes, prompt_text="Once upon a time", prompt_ids=(5, 6, 7))
    assert families.replay(request, CALL).source is None


# --- odd templates and schemas ----------------------------------------------------------------


def test_a_template_may_tell_the_time(families: Any, hermes: Any) -> None:
    days = ["Monday"]

    def render(messages: Any, tools: Any = None, **options: Any) -> str:
        return f"Today is {days[-1]}.\n{hermes.render(messages, tools, **options)}"

    request = attrs.evolve(hermes, render=render, template_options={"dated": True})
    assert second_call(families, request, CALL)
    days.append("Tuesday")
    assert second_call(families, request, CALL)


def test_a_schema_that_is_none_deep_inside_makes_no_call_valid(
    families: Any, make_tool: Any
) -> None:
    broken = make_tool("get", "path")
    broken["function"]["parameters"]["properties"]["path"] = {"enum": 5}
    request = families.request(families.tokenizer("hermes"), [broken])
    assert not second_call(families, request, CALL)
    assert families.replay(request, f"{CALL}\n{CALL}").source.counts["parse_fallback"] == 1
