"""Calls in the form of each family come back as they were made, however hostile, piece by piece."""

from __future__ import annotations

import json
import re
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mlxfill_model_tiny
from mlxfill import load_tokenizer
from mlxfill.tool_calls import call_form, read_calls
from mlxfill.tool_calls.formats import FORMATS
from mlxfill.tool_calls.sections import reply_apart
from mlxfill_serve.reply import (
    CallArguments,
    CallBegun,
    CallBroken,
    Content,
    Reasoning,
    ReplyReader,
)

HERE = Path(__file__).parent
STRICT = HERE.parent / "plugins" / "fill_strict" / "tests" / "templates"
TINY = Path(mlxfill_model_tiny.__file__).parent / "models" / "target"

ONE_CALL = {"channels", "llama_json"}
"""Families that make one call a reply."""
TEXT_ARGUMENTS = {"deepseek"}
AS_IT_IS = {"dsml": "</｜DSML｜parameter>", "seed": "</parameter>", "qwen3_coder": "</parameter>"}  # noqa: RUF001
"""What ends a value in forms that escape nothing: no value holds it, whoever reads the call."""
MARKED = {
    "dsml": "</｜DSML｜function_calls>",  # noqa: RUF001
    "seed": "</seed:tool_call>",
    "qwen3_coder": "</tool_call>",
    "glm": "</tool_call>",
}
"""What ends a call there: the same holds."""
FAMILIES = [
    "actions",
    "channels",
    "deepseek",
    "dsml",
    "hermes",
    "keyed",
    "kimi",
    "kimi_k3",
    "listed",
    "llama_json",
    "mistral",
    "mistral_args",
    "mistral_ids",
    "qwen3_coder",
    "seed",
]
PARSERS = {"kimi_k3": "kimi_k3"}
"""mlx-lm's parser where it is told from the vocabulary."""
THINKS = {
    "actions": ("<|START_THINKING|>", "<|END_THINKING|>"),
    "channels": ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant"),
    "hermes": ("<think>", "</think>"),
    "seed": ("<seed:think>", "</seed:think>"),
}
TEXTS = [
    *("src/app.py", "日本 🎉", "a\nb\n\tc", "12", "-1", "true", "1.50", "{}", "[1, 2]"),
    *('{"a": {"b": [1]}}', "C:\\new\\", 'it\'s "so"', '"', "\\", "}", "{", ",", "a, b=1", "]"),
    *(
        "</tool_call>",
        "<tool_call>",
        "[TOOL_CALLS]x[ARGS]{",
        "</parameter>",
        "<|call|>",
        "</think>",
    ),
    *("<|END_ACTION|>", "</tool_calls>", "<|tools_suffix|>", "<|end|><|start|>assistant"),
    *("<｜tool▁calls▁end｜>", "<|tool_calls_section_end|>", "</｜DSML｜parameter>"),  # noqa: RUF001
    *("</｜DSML｜function_calls>", "</seed:tool_call>"),  # noqa: RUF001
    '{"name": "read", "arguments": {"path": "x"}}',
    '<tool_call>\n{"name": "read", "arguments": {}}\n</tool_call>',
]


def tool(name: str, **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": []}
    function = {"name": name, "description": "Goes on.", "parameters": schema}
    return {"type": "function", "function": function}


OF = {
    name: {"type": name} for name in ("string", "integer", "number", "boolean", "array", "object")
}
TOOLS = [tool("read", path=OF["string"]), tool("set-all", **OF), tool("now")]
CALLS: list[list[tuple[str, dict[str, Any]]]] = [
    *([("read", {"path": text})] for text in TEXTS),
    [("now", {})],
    [("set-all", {"integer": -3, "number": 2.5, "boolean": True, "string": "false"})],
    [("set-all", {"array": [1, "x", None, {"k": True}], "object": {"k": {"ü": '\n"'}}})],
    [("read", {"path": "a"}), ("now", {}), ("set-all", {"integer": 1}), ("read", {"path": "a"})],
]


@pytest.fixture(scope="module")
def tokenizer_of(tmp_path_factory: pytest.TempPathFactory) -> Any:
    def made(family: str) -> Any:
        folder = tmp_path_factory.mktemp("families") / family
        shutil.copytree(TINY, folder)
        shutil.copy(STRICT / f"{family}.jinja", folder / "chat_template.jinja")
        settings = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))
        settings["tool_parser_type"] = PARSERS.get(family)
        (folder / "tokenizer_config.json").write_text(json.dumps(settings), "utf-8")
        return load_tokenizer(folder)

    return cache(made)


def written(tokenizer: Any, family: str, calls: list[tuple[str, dict[str, Any]]]) -> str:
    """What the template writes for a turn that makes the calls, without what ends it."""
    text = family in TEXT_ARGUMENTS
    items = [
        {
            "id": f"functions.{name}:{at}" if family.startswith("kimi") else f"abcdefg{at:02}",
            "type": "function",
            "function": {
                "name": name,
                "arguments": json.dumps(arguments, ensure_ascii=False) if text else arguments,
            },
        }
        for at, (name, arguments) in enumerate(calls)
    ]
    asked = [{"role": "user", "content": "Go on."}]
    turn = {"role": "assistant", "content": "", "tool_calls": items}

    def rendered(messages: Any, **options: Any) -> str:
        return str(tokenizer.apply_chat_template(messages, tools=TOOLS, tokenize=False, **options))

    prompt = rendered(asked, add_generation_prompt=True)
    reply = rendered([*asked, turn], add_generation_prompt=False).removeprefix(prompt).rstrip()
    for end in (tokenizer.eos_token, *ENDS):
        reply = reply.removesuffix(end).rstrip()
    return reply


ENDS = (
    "<|call|>",
    "<|eot_id|>",
    "<｜end▁of▁sentence｜>",  # noqa: RUF001
    "<|END_OF_TURN_TOKEN|>",
    "<|assistant_end|>",
    "<seed:eos>",
    "<|im_end|>",
    "<|end_of_msg|>",
)


def read(tokenizer: Any, text: str, size: int) -> tuple[list[tuple[str, Any]], str, str]:
    """Calls, content and reasoning of a reply that comes ``size`` characters at a time."""
    reader = ReplyReader(tokenizer, TOOLS, "")
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    parts = [part for piece in pieces for part in reader.feed(piece)] + reader.end()
    calls: dict[int, list[str]] = {}
    content = reasoning = ""
    for part in parts:
        match part:
            case CallBegun(at, _, name):
                calls[at] = [name, ""]
            case CallArguments(at, piece):
                calls[at][1] += piece
            case CallBroken(at):
                del calls[at]
            case Content(piece):
                content += piece
            case Reasoning(piece):
                reasoning += piece
    found = [(name, json.loads(arguments)) for name, arguments in calls.values()]
    return found, content, reasoning


def can_hold(family: str, calls: list[tuple[str, dict[str, Any]]]) -> bool:
    ends = {AS_IT_IS.get(family), MARKED.get(family)} - {None}
    texts = [str(value) for _, arguments in calls for value in arguments.values()]
    return not any(end in text for end in ends if end for text in texts)


@pytest.mark.parametrize("family", FAMILIES)
def test_calls_come_back_as_they_were_made(tokenizer_of: Any, family: str) -> None:
    tokenizer = tokenizer_of(family)
    for calls in CALLS:
        if not can_hold(family, calls) or (len(calls) > 1 and family in ONE_CALL):
            continue
        reply = written(tokenizer, family, calls)
        for size in (1, 5, len(reply)):
            found, content, _ = read(tokenizer, reply, size)
            assert found == calls, reply
            assert not content.strip(), reply


@pytest.mark.parametrize("family", THINKS)
def test_thoughts_stay_apart_from_calls(tokenizer_of: Any, family: str) -> None:
    tokenizer, (start, end) = tokenizer_of(family), THINKS[family]
    calls = [("read", {"path": "a"})]
    reply = f"{start}I should read{end}{written(tokenizer, family, calls)}"
    for size in (1, 5, len(reply)):
        assert read(tokenizer, reply, size) == (calls, "", "I should read")


@pytest.mark.parametrize("family", FAMILIES)
def test_a_call_that_breaks_off_is_no_call_with_half_its_arguments(
    tokenizer_of: Any, family: str
) -> None:
    tokenizer = tokenizer_of(family)
    reply = written(tokenizer, family, [("read", {"path": "src/app.py"})])
    for cut in range(1, reply.index("src/app.py") + 4):
        reader = ReplyReader(tokenizer, TOOLS, "")
        parts = [*reader.feed(reply[:cut]), *reader.end()]
        # Where a call is passed on while it is written, half of it may have been.
        if not any(isinstance(part, CallBegun) for part in parts):
            said = "".join(part.text for part in parts if isinstance(part, Content))
            assert bool(said.strip()) == bool(reply[:cut].strip())
            assert reply[:cut].strip().endswith(said.strip())


def test_prose_that_quotes_a_call_is_prose(tokenizer_of: Any) -> None:
    tokenizer = tokenizer_of("llama_json")
    call = written(tokenizer, "llama_json", [("read", {"path": "a"})])
    for text in (f"One would say {call}", '{"name": "Ada", "age": 36}', f"{call} does it."):
        for size in (1, len(text)):
            assert read(tokenizer, text, size) == ([], text, "")


def test_what_a_channel_is_named_is_no_content(tokenizer_of: Any) -> None:
    tokenizer = tokenizer_of("channels")
    reply = (
        "<|channel|>analysis<|message|>Short.<|end|><|start|>assistant"
        "<|channel|>commentary<|message|>One moment.<|end|><|start|>assistant"
        "<|channel|>final<|message|>Hello."
    )
    assert read(tokenizer, reply, 3) == ([], "One moment.Hello.", "Short.")


@pytest.mark.parametrize("family", ["mistral", "mistral_args", "mistral_ids", "kimi", "hermes"])
def test_ids_of_calls_are_the_models_own_or_such_as_every_template_takes(
    tokenizer_of: Any, family: str
) -> None:
    tokenizer = tokenizer_of(family)
    reader = ReplyReader(tokenizer, TOOLS, "")
    reply = written(tokenizer, family, [("read", {"path": "a"}), ("now", {})])
    begun = [p for p in [*reader.feed(reply), *reader.end()] if isinstance(p, CallBegun)]
    ids = [part.id for part in begun]
    if family in {"hermes", "mistral_args"}:
        assert all(len(each) == 9 and each.isalnum() for each in ids)
        assert len(set(ids)) == 2
    else:
        kimi = ["functions.read:0", "functions.now:1"]
        assert ids == (kimi if family == "kimi" else ["abcdefg00", "abcdefg01"])


@pytest.mark.parametrize("family", sorted({*FAMILIES} - {"llama_json"}))  # its end is no token here
def test_the_template_of_each_form_of_the_table_begins_calls_as_its_form_says(
    tokenizer_of: Any, family: str
) -> None:
    tokenizer = tokenizer_of(family)
    form = call_form(tokenizer, {})
    assert form.before.startswith(tokenizer.tool_call_start)
    assert form.end.endswith(tokenizer.tool_call_end)
    head = re.escape(f"{form.before}read{form.begin}")
    head = head.replace(form.NINE, "[a-z0-9]{9}").replace(form.COUNT, "[0-9]+")
    assert re.search(head, written(tokenizer, family, [("read", {"path": "a"})]))


def test_the_page_names_every_form_that_is_read_beyond_those_of_mlx_lm() -> None:
    page = (HERE.parent / "docs" / "agents.md").read_text("utf-8")
    listed = page.partition("mlxfill adds those that begin with:")[2].partition("Everything")[0]
    named = set(re.findall(r"`(.+?)`", listed)) - {"reasoning", "[CALL_ID]"}
    assert named == {form.start for form in FORMATS}


# --- whatever a reply is, stream, whole and engine agree ------------------------------------------

ALL = [*FAMILIES, "gemma", "gemma4", "glm", "longcat", "minicpm5", "minimax", "muse_spark"]
ALL += ["pythonic", "thinking_xml"]
PIECES = ["Well, ", "\n", "", "a `quote`. ", "{", '"', "```json\n", "日本 ", "<", "\\"]
CHANGES = ["", "}", "{", '"', "\\d", "\n", ",", "NaN", "</", "x", "\\ud83d", "]", "\x00"]


def engines(tokenizer: Any, text: str) -> tuple[list[tuple[str, Any]], str]:
    """The calls that the engine finds in a reply, and all but its reasoning."""
    _, content, bodies = reply_apart(tokenizer, "", text, tools=True)
    calls = [call for body in bodies for call in read_calls(tokenizer, body, TOOLS)]
    return [(call["name"], call["arguments"]) for call in calls], content


@pytest.mark.parametrize("family", ALL)
@settings(max_examples=25)
@given(data=st.data())
def test_stream_whole_and_engine_agree_on_every_reply(
    tokenizer_of: Any, family: str, data: st.DataObject
) -> None:
    tokenizer = tokenizer_of(family)
    calls = data.draw(st.sampled_from(CALLS))
    try:
        reply = written(tokenizer, family, calls)
    except Exception:  # noqa: BLE001 - a template may refuse some of them
        return
    before, after = data.draw(st.sampled_from(PIECES)), data.draw(st.sampled_from(["", *PIECES]))
    text = before + reply + after
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(text)))
        gone = data.draw(st.integers(0, 3))
        text = text[:at] + data.draw(st.sampled_from(CHANGES)) + text[at + gone :]
    text = text[: data.draw(st.one_of(st.just(len(text)), st.integers(0, len(text))))]
    whole = read(tokenizer, text, len(text) or 1)
    assert read(tokenizer, text, data.draw(st.integers(1, 9))) == whole
    expected, content = engines(tokenizer, text)
    assert whole[0] == expected
    if not expected and family != "channels":  # nothing vanishes but the names of channels
        assert whole[1].strip() == content.strip()


BEYOND = 1234567890123456789
ODD = tool(
    "odd",
    big={"type": "integer"},
    maybe={"type": ["string", "null"]},
    text={"type": "string"},
    either={"anyOf": [{"type": "integer"}, {"type": "string"}]},
    listed={"enum": ["1", 2, None]},
    known={"$ref": "#/$defs/count"},
    free={},
)
ODD["function"]["parameters"]["$defs"] = {"count": {"type": "integer"}}
TAGGED = ["glm", "longcat", "minicpm5", "minimax", "muse_spark", "qwen3_coder", "seed"]


@pytest.mark.parametrize("family", TAGGED)
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("big", BEYOND),
        ("big", -BEYOND),
        ("big", 0),
        ("maybe", "1.10"),
        ("maybe", "007"),
        ("maybe", None),
        ("text", "null"),
        ("text", "true"),
        ("text", "1.10"),
        ("text", " two  spaces "),
        ("text", ""),
        ("text", "1e400"),
        ("either", BEYOND),
        ("either", "01"),
        ("either", "1.0"),
        ("listed", "1"),
        ("listed", 2),
        ("listed", None),
        ("known", BEYOND),
        ("free", "1.10"),
        ("free", {"a": [1, BEYOND]}),
    ],
)
def test_values_have_the_types_of_the_schema_exactly(
    tokenizer_of: Any, family: str, key: str, value: Any
) -> None:
    tokenizer = tokenizer_of(family)
    reply = written(tokenizer, family, [("odd", {key: value})])
    _, _, bodies = reply_apart(tokenizer, "", reply, tools=True)
    (call,) = [call for body in bodies for call in read_calls(tokenizer, body, [ODD])]
    assert call["arguments"] == {key: value}
    assert type(call["arguments"][key]) is type(value)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('{"name": "read", "parameters": {"path": "a"}}', {"path": "a"}),
        ('{"name": "read", "arguments": "{\\"path\\": \\"a\\"}"}', {"path": "a"}),
        ('{"type": "function", "function": {"name": "read", "arguments": {}}}', {}),
        ('{"name": "read"}', {}),
        ('{"name": "read", "arguments": null}', {}),
        ('{"name": "read", "args": {"path": "a"}}', None),
        ('{"name": "read", "arguments": {"path": "a"}, "reason": "so"}', None),
        ('{"name": "read", "arguments": [1]}', None),
        ('{"name": "read", "arguments": 0}', None),
        ('{"name": "rm", "arguments": {}}', None),
        ('{"address": {"street": "Main", "no": 5}}', None),
        ('{"read": {"path": "a"}}', {"path": "a"}),
    ],
)
def test_what_a_call_says_is_taken_or_is_text(tokenizer_of: Any, body: str, expected: Any) -> None:
    tokenizer = tokenizer_of("hermes")
    reply = f"<tool_call>\n{body}\n</tool_call>"
    for size in (1, len(reply)):
        found, content, _ = read(tokenizer, reply, size)
        if expected is None:
            assert (found, content) == ([], reply)
        else:
            assert (found, content) == ([("read", expected)], "")


def test_an_answer_in_json_calls_no_tool_that_nobody_offered(tokenizer_of: Any) -> None:
    tokenizer = tokenizer_of("llama_json")
    reply = '{"address": {"street": "Main", "no": 5}}'
    for size in (1, 7, len(reply)):
        assert read(tokenizer, reply, size) == ([], reply, "")
    assert engines(tokenizer, reply) == ([], reply)
