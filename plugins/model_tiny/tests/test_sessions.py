from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mlxfill_model_tiny.corpus import training_transcripts
from mlxfill_model_tiny.sessions import main, sessions


def calls(session: dict[str, Any]) -> list[dict[str, Any]]:
    messages = session["messages"]
    return [call["function"] for m in messages for call in m.get("tool_calls", ())]


def said_by(role: str, session: dict[str, Any]) -> list[str]:
    return [m["content"] for m in session["messages"] if m["role"] == role]


def test_a_series_repeats_itself_and_begins_alike() -> None:
    made = sessions(12, seed=3)
    assert made[:4] == sessions(4, seed=3)
    assert made != sessions(12, seed=4)
    kinds = ["edit", "grep", "shell", "api"]
    assert [session["id"] for session in made] == [f"{kinds[i % 4]}-{i + 1}" for i in range(12)]
    assert all(session["source"].startswith("synthetic") for session in made)


def test_no_sentence_of_a_user_stood_in_the_training_set() -> None:
    trained = {t for s in training_transcripts() for t in said_by("user", {"messages": s.messages})}
    asked = [text for session in sessions(40) for text in said_by("user", session)]
    assert len(asked) > 80
    assert not trained & set(asked)


def test_every_call_is_of_an_offered_tool_and_followed_by_its_result() -> None:
    for session in sessions(40):
        offered = {tool["function"]["name"] for tool in session["tools"]}
        assert {call["name"] for call in calls(session)} <= offered
        roles = [m["role"] for m in session["messages"]]
        following = [
            roles[at + 1] for at, m in enumerate(session["messages"]) if m.get("tool_calls")
        ]
        assert set(following) == {"tool"}
        assert roles[-1] == "assistant"


def test_a_file_is_seen_again_as_it_was_edited() -> None:
    seen = 0
    for session in sessions(40, seed=1)[::4]:
        functions = calls(session)
        edit = next(f["arguments"] for f in functions if f["name"] == "edit_file")
        before, after, *_ = (m for m in said_by("tool", session) if " = " in m)
        assert {f["arguments"]["path"] for f in functions} == {edit["path"]}
        assert after == before.replace(edit["old"], edit["new"], 1)
        seen += after != before
    assert seen >= 9


def test_a_file_holds_a_session_a_line(tmp_path: Path) -> None:
    file = tmp_path / "sessions.jsonl"
    main(["--out", str(file), "--sessions", "5", "--seed", "2"])
    assert [json.loads(line) for line in file.read_text("utf-8").splitlines()] == sessions(5, 2)


def test_a_file_that_cannot_be_written_gets_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--out", str(tmp_path / "none" / "x.jsonl")])
    assert ended.value.code == 2
    assert "none/x.jsonl: No such file or directory" in capsys.readouterr().err
