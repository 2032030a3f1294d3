from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlxfill
from mlxfill_model_tiny import Ask, Verdict, held_out_asks, judge
from mlxfill_model_tiny.corpus import training_transcripts

GOOD = Verdict(well_formed=True, right_tool=True, exact=True)
WRONG_ARGUMENTS = Verdict(well_formed=True, right_tool=True, exact=False)
WRONG_TOOL = Verdict(well_formed=True, right_tool=False, exact=False)
BROKEN = Verdict(well_formed=False, right_tool=False, exact=False)


def call(tool: str, arguments: object) -> str:
    body = json.dumps({"name": tool, "arguments": arguments})
    return f"<tool_call>\n{body}\n</tool_call>"


def tool(name: str, required: list[str], **properties: dict[str, Any]) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": required}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


ASK = Ask(
    kind="example",
    messages=[{"role": "user", "content": "Wake me in five minutes."}],
    tools=[
        tool("set_timer", ["minutes"], minutes={"type": "integer"}, label={"type": "string"}),
        tool("set_mood", ["mood"], mood={"type": "string", "enum": ["good", "bad"]}),
        tool("set_tags", [], tags={"type": "array", "items": {"type": "string"}}),
    ],
    tool="set_timer",
    arguments={"minutes": 5},
)


def test_no_held_out_ask_stood_in_the_training_set() -> None:
    trained = {
        message["content"]
        for transcript in training_transcripts()
        for message in transcript.messages
        if message["role"] == "user"
    }
    asked = [
        message["content"]
        for ask in held_out_asks(200)
        for message in ask.messages
        if message["role"] == "user"
    ]
    assert len(asked) >= 200
    assert not trained & set(asked)


def test_asks_of_a_series_differ_and_begin_alike() -> None:
    asks = held_out_asks(60, seed=3)
    assert asks[:20] == held_out_asks(20, seed=3)
    assert len({json.dumps(ask.messages) for ask in asks}) == 60
    assert asks != held_out_asks(60, seed=4)
    assert len({ask.kind for ask in asks}) >= 8


def test_a_negative_number_of_asks_is_refused() -> None:
    assert held_out_asks(0) == []
    with pytest.raises(mlxfill.InputError, match="n is -1"):
        held_out_asks(-1)


@given(seed=st.integers())
def test_the_expected_call_is_offered_and_judged_exact(seed: int) -> None:
    for ask in held_out_asks(5, seed):
        assert ask.messages[-1]["role"] in {"user", "tool"}
        assert judge(ask, call(ask.tool, ask.arguments)) == GOOD


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        (call("set_timer", {"minutes": 5}), GOOD),
        (f"I will.\n</think>\n\n{call('set_timer', {'minutes': 5})}<|im_end|>\n", GOOD),
        (call("set_timer", {"minutes": 6}), WRONG_ARGUMENTS),
        (call("set_timer", {"minutes": 5, "label": "tea"}), WRONG_ARGUMENTS),
        (call("set_mood", {"mood": "bad"}), WRONG_TOOL),
        (call("set_tags", {"tags": ["a"]}), WRONG_TOOL),
        (call("set_mood", {"mood": "so so"}), BROKEN),
        (call("set_tags", {"tags": ["a", 1]}), BROKEN),
        (call("set_timer", {}), BROKEN),
        (call("set_timer", {"minutes": "5"}), BROKEN),
        (call("set_timer", {"minutes": True}), BROKEN),
        (call("set_timer", {"minutes": 5, "hours": 1}), BROKEN),
        (call("set_timer", "5"), BROKEN),
        (call("set_alarm", {"minutes": 5}), BROKEN),
        ('<tool_call>\n{"name": "set_timer"}\n</tool_call>', BROKEN),
        ('<tool_call>\n{"name": "set_timer", \n</tool_call>', BROKEN),
        ("<tool_call>\n[]\n</tool_call>", BROKEN),
        ("Sure! " + call("set_timer", {"minutes": 5}), BROKEN),
        (call("set_timer", {"minutes": 5}) * 2, BROKEN),
        (call("set_timer", {"minutes": 5}) + " Done.", BROKEN),
        ("The timer is set.", BROKEN),
        ("", BROKEN),
    ],
)
def test_judge(text: str, verdict: Verdict) -> None:
    assert judge(ASK, text) == verdict
