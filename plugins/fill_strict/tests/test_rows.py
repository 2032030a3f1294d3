"""What is compiled: every id comes from a real rendering, and no token boundary can move."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import attrs
import pytest

from mlxfill import TemplateError
from mlxfill_fill_strict import Kind, compiled_rows

CLOSED = {"additionalProperties": False}
ONE_CALL_ONLY = {"channels", "llama_json", "llama_python_tag"}
NO_CALLS = {"silent", "raising", "listed_arguments"}
FAMILIES = [
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


def tool_sets(make_tool: Any) -> dict[str, list[Any]]:
    return {
        "one argument each": [
            make_tool("read_file", "path", **CLOSED),
            make_tool("read_dir", "dir", **CLOSED),
        ],
        "mixed": [
            make_tool("get", "orderId", "orderName", **CLOSED),
            make_tool("get_prompt", "path", "line", required=["path"]),
            make_tool("now", **CLOSED),
        ],
        "only one": [make_tool("search", "query", **CLOSED)],
        "not ASCII": [make_tool("日本", "キー", **CLOSED), make_tool("größe", "maß", **CLOSED)],
    }


def replies(families: Any, name: str, request: Any) -> Iterator[tuple[int, ...]]:
    """Full renderings of one and of two calls with real names, keys and values, and plain ones."""
    calls = []
    for tool in request.tools:
        function = tool["function"]
        keys = list(function["parameters"]["properties"])
        for value in ("src/main.py", 12):
            calls += [(function["name"], {key: value}) for key in keys or ["x"]]
            calls += [(function["name"], dict.fromkeys(keys, value))]
        calls += [] if keys else [(function["name"], {})]
    for call in calls:
        yield families.reply(request, families.calls(name, call))
    if name not in ONE_CALL_ONLY:
        for pair in combinations(calls[:4], 2):
            yield families.reply(request, families.calls(name, *pair))
    for text in ("All done.", "Here are 2 of them"):
        yield families.reply(request, {"role": "assistant", "content": text})


def holds(ids: Sequence[int], part: Sequence[int]) -> bool:
    return any(ids[i : i + len(part)] == part for i in range(len(ids) - len(part) + 1))


def check_containment(families: Any, name: str, tokenizer: Any, tools: list[Any]) -> None:
    request = families.request(tokenizer, tools)
    compiled = compiled_rows(request)
    assert compiled.rows, compiled.why
    rendered = list(replies(families, name, request))
    for row in compiled.rows:
        assert any(holds(ids, row.trigger + row.emit) for ids in rendered), row
        assert 2 <= len(row.emit) <= 64
        assert not set(row.emit) & request.eos_ids


@pytest.mark.parametrize("tools", ["one argument each", "mixed", "only one", "not ASCII"])
@pytest.mark.parametrize("special", [True, False], ids=["special tokens", "plain text"])
@pytest.mark.parametrize("name", FAMILIES)
def test_every_span_stands_in_a_full_rendering(
    families: Any, make_tool: Any, name: str, tools: str, *, special: bool
) -> None:
    tokenizer = families.tokenizer(name, special=special)
    check_containment(families, name, tokenizer, tool_sets(make_tool)[tools])


@pytest.mark.parametrize("name", ["hermes", "llama_json", "minimax", "qwen3_coder", "thinking_xml"])
def test_every_span_stands_in_a_full_rendering_of_a_real_tokenizer(
    families: Any, make_tool: Any, real: str, name: str
) -> None:
    tokenizer = families.tokenizer(name, real)
    for tools in tool_sets(make_tool).values():
        check_containment(families, name, tokenizer, tools)


def test_the_test_of_containment_can_fail() -> None:
    assert holds((1, 2, 3, 4), (2, 3))
    assert not holds((1, 2, 3, 4), (2, 4))


@pytest.mark.parametrize("name", sorted(NO_CALLS))
def test_a_template_without_calls_compiles_nothing_and_says_why(
    families: Any, make_tool: Any, name: str
) -> None:
    compiled = compiled_rows(families.request(families.tokenizer(name), [make_tool("get", "path")]))
    assert compiled.rows == ()
    assert compiled.why == "the template renders no tool calls"


def texts(compiled: Any, tokenizer: Any, kind: Kind) -> list[tuple[str, str]]:
    return [
        (tokenizer.decode(row.trigger), tokenizer.decode(row.emit))
        for row in compiled.rows
        if row.kind is kind
    ]


def test_hermes_scaffold_and_names(families: Any, make_tool: Any) -> None:
    tokenizer = families.tokenizer("hermes")
    tools = [make_tool("read_file", "path", **CLOSED), make_tool("write", "path", "text")]
    compiled = compiled_rows(families.request(tokenizer, tools))
    assert texts(compiled, tokenizer, Kind.SCAFFOLD) == [("<tool_call>", '\n{"name": "')]
    assert texts(compiled, tokenizer, Kind.NAME) == [
        ('<tool_call>\n{"name": "read', '_file", "arguments": {"path":'),
        ('<tool_call>\n{"name": "write', '", "arguments": {"'),
    ]
    assert {row.origin for row in compiled.rows} == {"template", "schema"}


def test_a_single_tool_is_all_scaffold(families: Any, make_tool: Any) -> None:
    tokenizer = families.tokenizer("hermes")
    tools = [make_tool("search", "query", **CLOSED)]
    compiled = compiled_rows(families.request(tokenizer, tools))
    (row,) = compiled.rows
    assert tokenizer.decode(row.emit) == '\n{"name": "search", "arguments": {"query":'


def test_a_tool_without_arguments_is_written_to_its_end(families: Any, make_tool: Any) -> None:
    tokenizer = families.tokenizer("hermes")
    tools = [make_tool("now", **CLOSED), {"type": "function", "function": {"name": "later"}}]
    names = texts(compiled_rows(families.request(tokenizer, tools)), tokenizer, Kind.NAME)
    ends = [span[-32:] for _, span in names]
    assert ends == ['", "arguments": {}}\n</tool_call>'] * 2


def test_a_close_row_begins_after_the_complete_delimiter(families: Any, make_tool: Any) -> None:
    tokenizer = families.tokenizer("qwen3_coder")
    tools = [make_tool("read", "path", **CLOSED), make_tool("list", "dir", **CLOSED)]
    compiled = compiled_rows(families.request(tokenizer, tools))
    ((trigger, span),) = texts(compiled, tokenizer, Kind.CLOSE)
    assert trigger == "</parameter>"
    assert span == "\n</function>\n</tool_call>"


@pytest.mark.parametrize(
    "second",
    [
        {"keys": ["path", "line"], "additionalProperties": False},
        {"keys": ["path"], "required": [], "additionalProperties": False},
        {"keys": ["path"]},
        {"keys": [], "additionalProperties": False},
    ],
    ids=["two arguments", "optional", "open", "none"],
)
def test_no_close_row_unless_every_tool_takes_one_required_argument(
    families: Any, make_tool: Any, second: Any
) -> None:
    tokenizer = families.tokenizer("qwen3_coder")
    other = make_tool("list", *second.pop("keys"), **second)
    tools = [make_tool("read", "path", **CLOSED), other]
    compiled = compiled_rows(families.request(tokenizer, tools))
    assert texts(compiled, tokenizer, Kind.CLOSE) == []


def test_a_turn_end_of_several_tokens_is_a_row(families: Any, make_tool: Any) -> None:
    tokenizer = families.tokenizer("closing_turns")
    compiled = compiled_rows(families.request(tokenizer, [make_tool("get", "path")]))
    assert texts(compiled, tokenizer, Kind.TURN_END) == [("<|close|>", "message<|sep|>done")]


def test_names_and_keys_that_begin_alike_are_told_by_tokens(families: Any, make_tool: Any) -> None:
    tokenizer = families.tokenizer("hermes")
    tools = [make_tool("get", "orderId", "orderName", **CLOSED), make_tool("get_prompt", "path")]
    compiled = compiled_rows(families.request(tokenizer, tools))
    assert texts(compiled, tokenizer, Kind.NAME) == [
        ('<tool_call>\n{"name": "get",', ' "arguments": {"order'),
        ('<tool_call>\n{"name": "get_', 'prompt", "arguments": {"'),
    ]
    assert texts(compiled, tokenizer, Kind.KEY) == [
        ('<tool_call>\n{"name": "get", "arguments": {"orderI', 'd":'),
        ('<tool_call>\n{"name": "get", "arguments": {"orderN', 'ame":'),
    ]


def test_names_that_no_eight_tokens_tell_apart_have_no_row(families: Any, make_tool: Any) -> None:
    tokenizer = families.tokenizer("hermes")
    long = "qzxj" * 9
    tools = [make_tool(name, "path") for name in (f"{long}a", f"{long}b", "get", "q")]
    compiled = compiled_rows(families.request(tokenizer, tools))
    names = [trigger for trigger, _ in texts(compiled, tokenizer, Kind.NAME)]
    assert not any("qz" in name for name in names)
    assert any('"get' in name for name in names)


def test_a_span_of_more_than_64_tokens_is_no_row(families: Any, make_tool: Any) -> None:
    tokenizer = families.tokenizer("hermes")
    compiled = compiled_rows(families.request(tokenizer, [make_tool("qzxj" * 30, "path")]))
    assert compiled.rows == ()


@pytest.mark.parametrize(("count", "any_rows"), [(128, True), (129, False)])
def test_no_more_than_128_tools(
    families: Any, make_tool: Any, count: int, *, any_rows: bool
) -> None:
    tools = [make_tool(f"tool_{n}", "path") for n in range(count)]
    compiled = compiled_rows(families.request(families.tokenizer("hermes"), tools))
    assert bool(compiled.rows) is any_rows
    assert compiled.why == ("" if any_rows else "129 tools; at most 128 are compiled")


@pytest.mark.parametrize("special", [True, False], ids=["special tokens", "plain text"])
@pytest.mark.parametrize("name", FAMILIES)
def test_triggers_hold_letters_and_begin_with_a_word(
    families: Any, make_tool: Any, name: str, *, special: bool
) -> None:
    tokenizer = families.tokenizer(name, special=special)
    for tools in tool_sets(make_tool).values():
        for row in compiled_rows(families.request(tokenizer, tools)).rows:
            tokens = [tokenizer.decode([token]) for token in row.trigger]
            assert any(char.isalpha() for token in tokens for char in token)
            assert tokens[0].strip()


def test_where_only_the_name_marks_a_call_it_must_be_over(families: Any, make_tool: Any) -> None:
    tokenizer = families.tokenizer("llama_json")
    tools = [make_tool("now", **CLOSED), make_tool("set_timer", "minutes")]
    compiled = compiled_rows(families.request(tokenizer, tools))
    assert texts(compiled, tokenizer, Kind.SCAFFOLD) == []
    assert [trigger for trigger, _ in texts(compiled, tokenizer, Kind.NAME)] == [
        '{"name": "now",',
        '{"name": "set_timer",',
    ]


MALFORMED: list[Any] = [
    [{"type": "function", "function": {"name": ""}}],
    [{"type": "function", "function": {"name": 5}}],
    [{"type": "function", "function": {"name": "a", "parameters": []}}],
    [{"type": "function", "function": {"name": "a", "parameters": {"properties": []}}}],
    [{"type": "function", "function": {"name": "a", "parameters": {"required": [{}]}}}],
    [{"type": "function", "function": {"name": "a", "parameters": {"properties": {5: {}}}}}],
    [{"type": "function", "function": "a"}],
    [{}],
    [{"name": "a"}, {"name": "a"}],
]


@pytest.mark.parametrize("tools", MALFORMED, ids=repr)
def test_malformed_tools_compile_nothing(families: Any, tools: list[Any]) -> None:
    compiled = compiled_rows(families.request(families.tokenizer("silent"), tools))
    assert compiled.rows == ()
    assert compiled.why == "the tools are malformed"


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/x", "additionalProperties": False},
        {"patternProperties": {"^x": {}}, "additionalProperties": False},
        {"anyOf": [{"required": ["a"]}], "additionalProperties": False},
        {"additionalProperties": {"type": "string"}},
        {"additionalProperties": True},
        {"type": "array", "additionalProperties": False},
    ],
    ids=repr,
)
def test_a_schema_that_may_take_other_keys_is_open(
    families: Any, make_tool: Any, schema: Any
) -> None:
    tokenizer = families.tokenizer("hermes")
    tools = [make_tool("search", "query", **schema)]
    (row,) = compiled_rows(families.request(tokenizer, tools)).rows
    assert tokenizer.decode(row.emit) == '\n{"name": "search", "arguments": {"'


# --- the forms that templates want ------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "as_text"), [("qwen3_coder", False), ("glm", False), ("deepseek", True)]
)
def test_arguments_are_put_as_the_template_takes_them(
    families: Any, make_tool: Any, name: str, *, as_text: bool
) -> None:
    tools = [make_tool("get", "path")]
    compiled = compiled_rows(families.request(families.tokenizer(name), tools))
    assert compiled.calling is not None
    assert compiled.calling.as_text is as_text


def test_json_inside_a_json_string_is_not_how_a_call_is_written(
    families: Any, make_tool: Any
) -> None:
    tokenizer = families.tokenizer("llama_json")
    compiled = compiled_rows(families.request(tokenizer, [make_tool("get", "path", **CLOSED)]))
    assert all('\\"' not in tokenizer.decode(row.emit) for row in compiled.rows)
    assert any('{"path":' in tokenizer.decode(row.emit) for row in compiled.rows)


def test_call_ids_are_given_as_demanded_and_never_injected(families: Any, make_tool: Any) -> None:
    tokenizer = families.tokenizer("mistral")
    tools = [make_tool("now", **CLOSED), make_tool("get", "path", **CLOSED)]
    compiled = compiled_rows(families.request(tokenizer, tools))
    spans = [tokenizer.decode(row.emit) for row in compiled.rows]
    assert 'ow", "arguments": {}, "id": "' in spans
    kimi = families.tokenizer("kimi")
    compiled = compiled_rows(families.request(kimi, tools))
    assert [kimi.decode(row.trigger + row.emit) for row in compiled.rows] == [
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.now:",
    ]


@pytest.mark.parametrize("name", ["thinking_xml", "glm", None])
def test_rows_compile_where_the_prompt_opens_the_reasoning(
    families: Any, make_tool: Any, name: str | None
) -> None:
    tokenizer = families.tokenizer(name)
    request = families.request(tokenizer, [make_tool("get", "path")], enable_thinking=True)
    assert name == "glm" or request.prompt_text.endswith("<think>\n")
    compiled = compiled_rows(request)
    assert compiled.rows[0].trigger == tuple(
        tokenizer.encode("<tool_call>", add_special_tokens=False)
    )


def test_a_template_that_does_not_continue_the_prompt_compiles_nothing(
    families: Any, make_tool: Any
) -> None:
    tokenizer = families.tokenizer("hermes")
    request = families.request(tokenizer, [make_tool("get", "path")])

    def render(messages: Any, tools: Any = None, **options: Any) -> str:
        text: str = request.render(messages, tools, **options)
        return text if options.get("add_generation_prompt", True) else text.upper()

    compiled = compiled_rows(attrs.evolve(request, render=render, template_options={"other": 1}))
    assert compiled.rows == ()


# --- delimiters ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("hermes", {'"}}', '",'}),
        ("gemma", {"<escape>"}),
        ("glm", {"</arg_value>"}),
        ("mistral", {'"},', '",'}),
    ],
)
def test_delimiters_end_values(
    families: Any, make_tool: Any, name: str, expected: set[str]
) -> None:
    tokenizer = families.tokenizer(name)
    compiled = compiled_rows(families.request(tokenizer, [make_tool("get", "path")]))
    assert {tokenizer.decode([token]) for token in compiled.delimiters} == expected


def test_a_template_for_tools_alone_is_compiled_with_them(families: Any, make_tool: Any) -> None:
    request = families.request(families.tokenizer("hermes"), [make_tool("get", "path", **CLOSED)])

    def render(messages: Any, tools: Any = None, **options: Any) -> str:
        if not tools:
            raise TemplateError("'NoneType' object is not iterable")
        return str(request.render(messages, tools, **options))

    assert compiled_rows(attrs.evolve(request, render=render)).rows == compiled_rows(request).rows
