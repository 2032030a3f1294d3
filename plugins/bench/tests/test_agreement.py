"""When two turns do the same."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from mlxfill_bench.agreement import Deed, generated_deed, recorded_deed

CALLING = SimpleNamespace(tool_call_start="<tool_call>")
SPEAKING = SimpleNamespace(tool_call_start=None)


def recorded(*calls: tuple[str, Any], text: str = "") -> Deed:
    functions = [{"function": {"name": n, "arguments": a}} for n, a in calls]
    return recorded_deed({"role": "assistant", "content": text, "tool_calls": functions})


def generated(content: str, *calls: tuple[str, Any], tokenizer: Any = CALLING) -> Deed:
    result: Any = SimpleNamespace(
        text=f"So <tool_call> or </think> it is.</think>{content}",
        content=content,
        tool_calls=[{"name": n, "arguments": a} for n, a in calls],
    )
    return generated_deed(result, tokenizer)


def written(name: str, arguments: Any) -> str:
    body = json.dumps({"name": name, "arguments": arguments})
    return f"<tool_call>\n{body}\n</tool_call>"


READ = ("read", {"path": "a.py", "lines": [1, 2]})


def test_the_order_of_keys_does_not_count() -> None:
    turned = ("read", {"lines": [1, 2], "path": "a.py"})
    assert generated(written(*READ), turned).same(recorded(READ))


@pytest.mark.parametrize(
    "other",
    [
        ("reads", {"path": "a.py", "lines": [1, 2]}),
        ("read", {"path": "a.py ", "lines": [1, 2]}),
        ("read", {"path": "a.py", "lines": [2, 1]}),
        ("read", {"path": "a.py", "lines": [True, 2]}),
        ("read", {"path": "a.py"}),
    ],
)
def test_another_name_or_argument_is_another_call(other: tuple[str, Any]) -> None:
    assert not generated(written(*other), other).same(recorded(READ))


def test_what_is_said_beside_a_call_does_not_count() -> None:
    said = "I will look.\n" + written(*READ)
    assert generated(said, READ).same(recorded(READ, text="Let me look."))


def test_the_number_of_calls_counts() -> None:
    assert not generated(written(*READ) * 2, READ, READ).same(recorded(READ))
    assert not generated(written(*READ), READ).same(recorded(READ, READ))


def test_a_broken_call_beside_a_good_one_is_no_agreement() -> None:
    text = written(*READ) + '\n<tool_call>\n{"name": "re'
    assert not generated(text, READ).same(recorded(READ))


def test_a_quoted_marker_is_data() -> None:
    quoting = ("write", {"text": "<tool_call> begins a call, </think> ends a thought"})
    assert generated(written(*quoting) * 2, quoting, quoting).same(recorded(quoting, quoting))
    assert not generated(written(*quoting) + "<tool_call>{", quoting).same(recorded(quoting))
    said = "A thought ends with </think>."
    assert generated(said).same(recorded(text=said))


def test_a_call_and_a_text_differ() -> None:
    assert not generated("a.py is empty.").same(recorded(READ))
    assert not generated(written(*READ), READ).same(recorded(text="a.py is empty."))


def test_of_a_text_neither_white_space_nor_reasoning_counts() -> None:
    assert generated("\n\nIt is\n  empty.").same(recorded(text="It is empty.\n"))
    assert not generated("It is full.").same(recorded(text="It is empty."))
    assert not generated("It is empty").same(recorded(text="It is empty."))


def test_a_model_without_tools_and_reasoning_is_compared_by_its_text() -> None:
    said = generated("a </think> b", tokenizer=SPEAKING)
    assert said.same(recorded(text="a </think>  b"))


def test_a_deed_is_shown_as_what_it_comes_to() -> None:
    assert str(recorded(READ)) == json.dumps(
        {"arguments": {"lines": [1, 2], "path": "a.py"}, "name": "read"}
    )
    assert str(recorded(text="It is\nempty.")) == "It is empty."
