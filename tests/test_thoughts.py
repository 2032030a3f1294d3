"""Reasoning is dim on a terminal, and text everywhere."""

from __future__ import annotations

import io
import os
import re
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import pytest

import mlxfill
from mlxfill.cli import main

if TYPE_CHECKING:
    from pathlib import Path

QUESTION = "Where is send_key used?"
CODE = re.compile("\x1b\\[([0-9;]*)m")


@pytest.fixture(scope="module")
def expected() -> mlxfill.Result:
    with mlxfill.load("tiny", plugins=[], config={}) as engine:
        return engine.generate([{"role": "user", "content": QUESTION}], max_tokens=40)


@pytest.fixture(params=["generate", "chat"])
def said(
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Any:
    """What the command writes to standard output, under a variable of the environment."""
    for variable in (*os.environ, "FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE"):
        if variable.startswith(("MLXFILL_", "FORCE_", "NO_COLOR", "TTY_")):
            monkeypatch.delenv(variable, raising=False)
    for variable in ("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(variable, str(tmp_path))
    monkeypatch.chdir(tmp_path)
    mx.set_default_device(mx.cpu)

    def said(*options: str, **variables: str) -> str:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        asked = [QUESTION] if request.param == "generate" else []
        monkeypatch.setattr("sys.stdin", io.StringIO(f"{QUESTION}\n"))
        common = ["--model", "tiny", "--no-plugins", "--max-tokens", "40", *options]
        assert main([request.param, *asked, *common]) == 0
        return capsys.readouterr().out

    return said


def styles(written: str) -> list[tuple[str, str]]:
    """Each text with the codes before it, neighbours of one style together."""
    parts = CODE.split(written)
    found: list[tuple[str, str]] = []
    for code, text in zip(["", *parts[1::2]], parts[::2], strict=True):
        style = "" if code == "0" else code
        if text and found and found[-1][1] == style:
            found[-1] = (found[-1][0] + text, style)
        elif text:
            found.append((text, style))
    return found


def test_a_terminal_shows_it_dim(said: Any, expected: mlxfill.Result) -> None:
    thought, rest = expected.text.split("</think>")
    assert thought == expected.reasoning
    dim, plain = styles(said(TERM="xterm", FORCE_COLOR="1"))
    assert dim == (f"{thought}</think>", "2")
    assert plain == (f"{rest}\n", "")


@pytest.mark.parametrize(
    "variables", [{}, {"TERM": "xterm", "FORCE_COLOR": "1", "NO_COLOR": "1"}, {"TERM": "dumb"}]
)
@pytest.mark.parametrize("options", [(), ("--origins",)])
def test_elsewhere_it_is_text_like_all_else(
    said: Any, expected: mlxfill.Result, variables: dict[str, str], options: tuple[str, ...]
) -> None:
    assert said(*options, **variables) == f"{expected.text}\n"


@pytest.mark.parametrize("plugins", [[], ["fill-strict", "fill-echo", "spec-ngram"]])
def test_a_stop_string_counts_in_what_is_said_not_in_what_is_thought(
    expected: mlxfill.Result, plugins: list[str]
) -> None:
    asked: Any = [{"role": "user", "content": QUESTION}]
    thought = expected.reasoning.split()[-1]
    assert thought not in expected.content
    with mlxfill.load("tiny", plugins=plugins, config={"gate": {"enabled": False}}) as engine:
        free = engine.generate(asked, max_tokens=40, stop=thought)
        assert free.tokens == expected.tokens
        assert free.text == expected.text
        early = engine.generate(asked, max_tokens=40, stop=thought, stop_in_reasoning=True)
        assert early.finish_reason == "stop"
        assert early.text == expected.text.partition(thought)[0]
        said = expected.content.strip()[3:7]
        both = engine.generate(asked, max_tokens=40, stop=[thought, said])
        before, end, after = expected.text.partition("</think>")
        assert both.text == before + end + after.partition(said)[0]
        assert both.finish_reason == "stop"
