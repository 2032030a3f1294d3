"""What a file of sessions may hold, and what a wrong one gets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import mlxfill
from mlxfill_bench import SHIPPED, Session, read_sessions

USER, REPLY = {"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello."}
CALL = {"type": "function", "function": {"name": "read", "arguments": {"path": "a.py"}}}


def write(*sessions: Any) -> Path:
    file = Path("sessions.jsonl")
    lines = [s if isinstance(s, str) else json.dumps(s) for s in sessions]
    file.write_text("\n".join(lines) + "\n", "utf-8")
    return file


def one(**changes: Any) -> Session:
    (session,) = read_sessions(write({"id": "a", "messages": [USER, REPLY], **changes}))
    return session


def test_each_turn_of_the_assistant_has_the_history_before_it() -> None:
    called = {"role": "assistant", "content": "", "tool_calls": [CALL]}
    result = {"role": "tool", "content": "x = 1"}
    first, second = one(messages=[USER, called, result, REPLY]).turns()
    assert (first.number, first.history, first.recorded) == (1, (USER,), called)
    assert (second.number, second.history, second.recorded) == (2, (USER, called, result), REPLY)


def test_a_greeting_of_the_assistant_is_history() -> None:
    (turn,) = one(messages=[REPLY, USER, REPLY]).turns()
    assert turn.history == (REPLY, USER)


def test_forms_that_openai_allows_become_those_that_templates_know() -> None:
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "read", "arguments": '{"path": 1}'},
    }
    messages = [
        {
            "role": "user",
            "content": [{"type": "text", "text": "He"}, {"type": "text", "text": "y"}],
        },
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "x"},
        REPLY,
    ]
    user, assistant, tool, _ = one(messages=messages).messages
    assert user["content"] == "Hey"
    assert assistant["content"] == ""
    assert assistant["tool_calls"][0] == {
        **call,
        "function": {"name": "read", "arguments": {"path": 1}},
    }
    assert tool == messages[2]


def test_what_else_a_session_says() -> None:
    tool = {"type": "function", "function": {"name": "read", "parameters": {}}}
    session = one(tools=[tool], template_options={"enable_thinking": False}, source="made up")
    assert session.tools == (tool,)
    assert session.template_options == {"enable_thinking": False}
    assert one(tools=[]).tools is None
    assert one().template_options == {}


def test_a_session_without_an_id_is_called_by_its_line() -> None:
    sessions = read_sessions(write({"messages": [USER, REPLY]}, "", {"messages": [USER, REPLY]}))
    assert [session.id for session in sessions] == ["1", "3"]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{", "line 2: is not JSON: "),
        ("[" * 100_000, "line 2: is not JSON: "),
        ("[1]", "line 2: must be an object with messages, not [1]"),
        ({"id": "x"}, "line 2: holds no messages, only ['id']"),
        ({"mesages": []}, "only ['mesages']; did you mean 'messages'?"),
        ({"messages": {}}, "line 2: messages must be a list of objects"),
        ({"messages": [USER, "x"]}, "line 2: messages must be a list of objects"),
        (
            {"messages": [USER, {"role": "user", "content": 5}]},
            "line 2: message 1: content must be",
        ),
        ({"messages": [USER, {"content": "x"}]}, "line 2: message 1 has no role: "),
        ({"messages": [{**REPLY, "tool_calls": [1]}]}, "message 0: tool_calls must be a list of"),
        ({"messages": [REPLY, USER]}, "line 2: no turn of the assistant to replay"),
        ({"messages": [USER, REPLY], "tools": {}}, "line 2: tools must be a list of tools"),
        (
            {"messages": [USER, REPLY], "template_options": [1]},
            "line 2: template_options must be an object, not [1]",
        ),
        ({"id": "a", "messages": [USER, REPLY]}, "two sessions have the id 'a'"),
        *(
            (
                {"messages": [USER, {**REPLY, "tool_calls": calls}]},
                "line 2: message 1 has tool_calls without name and arguments",
            )
            for calls in (
                [{"function": 1}],
                [{"function": {"name": 1, "arguments": {}}}],
                [{"function": {"name": "read"}}],
                [{"function": {"name": "read", "arguments": "{"}}],
            )
        ),
    ],
)
def test_a_wrong_line_is_named(line: Any, complaint: str) -> None:
    with pytest.raises(mlxfill.InputError) as error:
        read_sessions(write({"id": "a", "messages": [USER, REPLY]}, line))
    assert str(error.value).startswith("sessions.jsonl")
    assert complaint in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_that_cannot_be_read_is_named() -> None:
    with pytest.raises(mlxfill.InputError, match=r"^none.jsonl: No such file"):
        read_sessions("none.jsonl")
    Path("empty.jsonl").write_text("\n \n")
    with pytest.raises(mlxfill.InputError, match=r"^empty.jsonl: no sessions: "):
        read_sessions("empty.jsonl")
    Path("latin.jsonl").write_bytes(b"\xe9")
    with pytest.raises(mlxfill.InputError, match=r"^latin.jsonl is not UTF-8 \(at byte 0\)"):
        read_sessions("latin.jsonl")


def test_the_sessions_that_come_along_are_many_small_and_said_to_be_synthetic() -> None:
    lines = SHIPPED.read_text("utf-8").splitlines()
    assert all(json.loads(line)["source"].startswith("synthetic") for line in lines)
    sessions = read_sessions(SHIPPED)
    assert len(sessions) == 24
    assert sum(len(session.turns()) for session in sessions) > 100
    assert SHIPPED.stat().st_size < 100_000
