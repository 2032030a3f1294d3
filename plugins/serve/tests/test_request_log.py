"""The log of requests: what an operator reads, and nothing of what was said."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

CHAT = "/v1/chat/completions"
SECRET = "Where is send_key used?"  # noqa: S105 - a question
BODY: dict[str, Any] = {"messages": [{"role": "user", "content": SECRET}], "max_tokens": 6}


def asked(serve_tiny: Any, **settings: Any) -> None:
    with serve_tiny(**settings) as served, served.http() as http:
        assert http.post(CHAT, json=BODY).status_code == 200
        assert http.post(CHAT, json={**BODY, "stream": True, "n": 2}).status_code == 200
        assert http.post(CHAT, json={**BODY, "temperature": -1}).status_code == 400
        assert http.get("/nowhere/at/all").status_code == 404
        assert http.get("/health").status_code == 200
        assert served.idle()


def test_each_request_is_a_line_of_json(
    serve_tiny: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    asked(serve_tiny, log="json")
    told = capsys.readouterr().err
    lines = [json.loads(line) for line in told.splitlines() if line.startswith("{")]
    assert [(line["path"], line["status"]) for line in lines] == [
        (CHAT, 200),
        (CHAT, 200),
        (CHAT, 400),
        ("other", 404),
    ]
    assert [line.get("completion_tokens") for line in lines] == [6, 12, None, None]
    assert lines[0]["prompt_tokens"] == lines[1]["prompt_tokens"] > lines[0]["cached_tokens"] == 0
    assert all(0 <= line["first_byte_s"] <= line["seconds"] for line in lines)
    assert SECRET not in told


def test_each_request_is_a_line_of_text(
    serve_tiny: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    asked(serve_tiny, log="text")
    lines = [line for line in capsys.readouterr().err.splitlines() if f"POST {CHAT} " in line]
    assert len(lines) == 3
    assert f"POST {CHAT} 200 first_byte_s=" in lines[0]
    assert "completion_tokens=6" in lines[0]


def test_there_is_none_unless_it_is_asked_for(
    serve_tiny: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    asked(serve_tiny)
    assert CHAT not in capsys.readouterr().err
