"""The ``llm`` command line as a client, by its models that speak OpenAI's API."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    import mlxfill


@pytest.fixture
def llm(served: Any, tmp_path: Path) -> Any:
    """``llm("hello", "--no-stream")``: what it prints."""
    model = f"""
- model_id: mine
  model_name: tiny
  api_base: {served.url}/v1
  supports_schema: true
  supports_tools: true
"""
    (tmp_path / "extra-openai-models.yaml").write_text(model)
    kept = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}

    def llm(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "llm", *arguments, "--no-log"],
            env={**kept, "LLM_USER_PATH": str(tmp_path)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return llm


def test_it_streams_a_reply(llm: Any, plain: mlxfill.Engine) -> None:
    question = "Where is send_key used?"
    said = plain.generate([{"role": "user", "content": question}]).text
    content = said.partition("</think>")[2].strip()
    assert content
    assert content in llm("-m", "mine", question)


def test_it_gets_what_a_schema_asks_for(llm: Any) -> None:
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    asked = json.dumps({**schema, "additionalProperties": False})
    printed = llm("-m", "mine", "Hi.", "--schema", asked, "--no-stream")
    assert isinstance(json.loads(printed)["ok"], bool)


def test_a_tool_makes_the_round_trip(llm: Any, tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    function = f"""
def search_code(query: str) -> str:
    "Searches the code."
    open({str(asked)!r}, "w").write(query)
    return "src/keys.py:3: def send_key():"
"""
    llm("-m", "mine", "Where is send_key used?", "--functions", function, "--chain-limit", "9")
    assert asked.read_text() == "send_key"
