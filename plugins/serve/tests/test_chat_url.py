"""``mlxfill chat --url``: the conversation of the command line, with a server."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import pytest

from mlxfill.cli import main

if TYPE_CHECKING:
    from pathlib import Path

QUESTION = "Where is send_key used?"


@pytest.fixture
def chat(served: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Say some lines to the server: exit code, standard output, standard error."""
    monkeypatch.setenv("COLUMNS", "120")

    def chat(*lines: str, options: tuple[str, ...] = (), url: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        code = main(["chat", "--url", url or served.url, *options])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return code, out, err

    return chat


def test_it_prints_what_the_engine_alone_says(chat: Any, plain: Any) -> None:
    expected = plain.generate([{"role": "user", "content": QUESTION}]).text
    for options in ((), ("--origins",), ("--model", "tiny", "--temp", "0")):
        code, out, _ = chat(QUESTION, options=options)
        assert code == 0
        assert out.strip() == expected.strip()


def test_reasoning_is_dim_on_a_terminal(
    chat: Any, plain: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = plain.generate([{"role": "user", "content": QUESTION}])
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("FORCE_COLOR", "1")
    code, out, err = chat(QUESTION)
    assert code == 0
    assert "reading" not in err
    dim, rest = out.replace("\x1b[0m\x1b[2m", "").rsplit("\x1b[0m", 1)
    assert dim.strip() == f"\x1b[2m{expected.reasoning}</think>"
    assert f"{dim[4:]}{rest}".strip() == expected.text.strip()


def test_turns_stats_origins_and_reset(chat: Any) -> None:
    code, out, err = chat(
        "/stats", QUESTION, "/stats", QUESTION, "/reset", QUESTION, options=("--origins",)
    )
    assert code == 0
    assert "nothing was said yet" in err
    assert "origins: sampled" in err
    assert "per forward" in err
    first, again = out.splitlines()[0], out.splitlines()[-1]
    assert first
    assert again


def test_tools_are_offered(chat: Any, workplace: Path) -> None:
    parameters = {"type": "object", "properties": {"query": {"type": "string"}}}
    tool = {"type": "function", "function": {"name": "search_code", "parameters": parameters}}
    (workplace / "tools.json").write_text(json.dumps([tool]))
    _, out, _ = chat(QUESTION, options=("--tools", "tools.json"))
    assert '{"name": "search_code", "arguments": {"query": "send_key"}}' in out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--plugins", "spec-ngram"), "--plugins is the server's to decide"),
        (("--kv-bits", "8"), "--kv-bits is the server's to decide"),
        (("--temp", "-1"), "--temp must be"),
    ],
)
def test_what_the_server_decides_is_refused(chat: Any, options: tuple[str, ...], said: str) -> None:
    code, out, err = chat(QUESTION, options=options)
    assert (code, out) == (2, "")
    assert said in err


def test_a_server_that_refuses_or_is_not_there_is_told_in_one_line(chat: Any) -> None:
    code, out, err = chat(QUESTION, options=("--model", "other"))
    assert (code, out) == (1, "")
    assert "the model 'other' does not exist" in err
    wrong = [(url, 2, "--url must be like") for url in ("ftp://x", "x:99999", "x:y", "[::1", "a b")]
    for url, expected, said in (("http://127.0.0.1:1", 1, "cannot be reached"), *wrong):
        code, out, err = chat(QUESTION, url=url)
        assert code == expected
        assert said in err
        assert len(err.splitlines()) == 1
