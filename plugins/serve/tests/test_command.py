"""``mlxfill serve`` as it is typed."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import attrs
import httpx
import pytest
import typer
from typer.main import get_command

from mlxfill.cli import main
from mlxfill_serve import ServeSettings
from mlxfill_serve.command import serve
from mlxfill_serve.server import is_open, listen
from patience import AT_ALL

if TYPE_CHECKING:
    from collections.abc import Iterator

CHAT = "/v1/chat/completions"
HELLO = [{"role": "user", "content": "Where is send_key used?"}]


@contextmanager
def started(*arguments: str, **environment: str) -> Iterator[tuple[Any, httpx.Client]]:
    """The command on a free port, once it says where it serves."""
    program = [sys.executable, "-m", "mlxfill", "serve", "--port", "0", *arguments]
    quick = {"MLXFILL_GATE__ENABLED": "false"}
    # Whoever started these tests in the background may have made us, and so it, deaf to Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        program, stderr=subprocess.PIPE, text=True, env={**os.environ, **quick, **environment}
    )
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        found = re.search(r"http://\S+", line)
        assert found, line + process.stderr.read()
        with httpx.Client(base_url=found[0], timeout=AT_ALL, trust_env=False) as http:
            yield process, http
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


CURL = re.compile(r"^(?:\$ )?(curl .*?\}')$", re.MULTILINE | re.DOTALL)


def curls() -> list[dict[str, Any]]:
    """What the pages tell users to send to a server."""
    found = []
    root = Path(__file__).parents[3]
    for page in (root / "plugins" / "serve" / "README.md", root / "docs" / "serve.md"):
        for command in re.findall(
            r"^(?:\$ )?(curl .*?\}')$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL
        ):
            _, url, _, header, _, body = shlex.split(command)
            assert header == "Content-Type: application/json"
            found.append({"url": urlsplit(url).path, "json": json.loads(body)})
    return found


def test_it_answers_and_ends_when_told_letting_requests_end() -> None:
    with started("--model", "tiny", "--rows", "2") as (process, http):
        assert len(curls()) == 2
        for curl in curls():
            told = http.post(**curl)
            assert told.json()["choices"][0]["message"]["content"]
        asked = {"messages": HELLO, "max_tokens": 3, "chat_template_kwargs": {"enable_thinkng": 1}}
        for _ in range(2):
            answer = http.post(CHAT, json=asked).json()
            assert answer["model"] == "tiny"
            assert answer["usage"]["completion_tokens"] == 3
        body = {"prompt": "def", "max_tokens": 150, "stream": True, "temperature": 3, "seed": 1}
        with http.stream("POST", "/v1/completions", json=body) as stream:
            lines = stream.iter_lines()
            next(lines)
            process.send_signal(signal.SIGTERM)
            assert list(lines)[-2:] == ["data: [DONE]", ""]
        assert process.wait(AT_ALL) in {0, -signal.SIGTERM}
        # The operator is told, once, of an option that does nothing; its client is not refused.
        said = "the chat template never reads 'enable_thinkng'; did you mean 'enable_thinking'?"
        assert process.stderr.read().count(f"note: engine (template_options): {said}\n") == 1


ENDLESS = {"prompt": "x", "max_tokens": 30_000, "stream": True}
"""The model says it again and again: a minute of work without drafts."""


def stopped(process: Any, stream: httpx.Response) -> tuple[list[str], str]:
    """What the client of an endless reply and the terminal are told in the end."""
    lines = [line for line in stream.iter_lines() if line]
    process.wait(AT_ALL)
    return lines, process.stderr.read()


def test_a_request_that_outlasts_the_drain_is_told_so() -> None:
    with (
        started("--no-plugins", MLXFILL_PLUGINS__SERVE__DRAIN="0.2") as (process, http),
        http.stream("POST", "/v1/completions", json=ENDLESS) as stream,
    ):
        process.send_signal(signal.SIGTERM)
        lines, said = stopped(process, stream)
    assert '"server_stopping"' in lines[-1]
    assert said.splitlines() == [
        "mlxfill stops when 1 running request ended, after 0.2 s at most; Ctrl-C: now"
    ]


def test_a_second_ctrl_c_does_not_wait() -> None:
    with (
        started("--no-plugins", MLXFILL_PLUGINS__SERVE__DRAIN="600") as (process, http),
        http.stream("POST", "/v1/completions", json=ENDLESS) as stream,
    ):
        process.send_signal(signal.SIGINT)
        assert "running request" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        lines, said = stopped(process, stream)
    assert '"server_stopping"' in lines[-1]
    assert said == ""
    assert process.returncode == 130


def test_a_key_may_come_from_the_environment() -> None:
    with started(MLXFILL_API_KEY="secret", MLXFILL_CACHE__EVERY_REQUEST="false") as (_, http):
        assert http.get("/v1/models").status_code == 401
        with_key = {"Authorization": "Bearer secret"}
        assert http.get("/v1/models", headers=with_key).status_code == 200


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["serve", *arguments]) in {1, 2}
    out, err = capsys.readouterr()
    (line,) = err.splitlines()
    assert not out
    return str(line)


def test_wrong_use_gets_one_line(
    capsys: pytest.CaptureFixture[str], workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for arguments, told in (
        (("--port", "70000"), "port must be a whole number from 0 to 65535, not 70000"),
        (("--rows", "0"), "rows must be a whole number of at least 1, not 0"),
        (("--host", "300.1.1.1", "--port", "0"), "cannot listen on 300.1.1.1"),
        (("--api-key", ""), "--api-key is empty: give it a value, or leave it out"),
        (("--host", ""), "--host is empty"),
        (("--allow-origin", "foo"), "(--allow-origin) must be like https://chat.example or"),
        (("--allow-origin", "http://a.example/"), "not 'http://a.example/'"),
        (("--allow-origin", "*", "--allow-origin", "HTTP://a"), "not 'HTTP://a'"),
        (("--adapter", "sql"), "--adapter must be NAME=FOLDER, not 'sql'"),
        (("--adapter", "a=x", "--adapter", "a=y"), "--adapter names 'a' twice"),
        (("--port", "0", "--adapter", f"a={workplace}"), "no adapter_config.json there"),
        (("--port", "0", "--model", "nothing-here"), "nothing-here"),
        (("--port", "0", "--plugins", "a", "--no-plugins"), "not both"),
        (("--port", "0", "--plugins", "zz-none"), "plugin 'zz-none' is not installed"),
    ):
        assert told in complaint(capsys, *arguments)
    (workplace / "mlxfill.toml").write_text("[plugins.serve]\nrow = 3\n")
    assert "plugins.serve.row" in complaint(capsys)
    for key in ("host", "api_key"):
        (workplace / "mlxfill.toml").write_text(f"[plugins.serve]\n{key} = ''\n")
        assert f"{key} is empty" in complaint(capsys)
    monkeypatch.setenv("MLXFILL_PLUGINS__SERVE__PORT", "high")
    (workplace / "mlxfill.toml").unlink()
    assert "port" in complaint(capsys)


def test_a_taken_port_is_told_before_the_model_is_loaded(
    capsys: pytest.CaptureFixture[str],
) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        said = complaint(capsys, "--port", port, "--model", "nothing-here")
    assert f"cannot listen on 127.0.0.1 port {port}: Address already in use; --port N" in said


@pytest.mark.parametrize("address", ["0.0.0.0", "192.168.1.7", "::", "fe80::1%eth0"])  # noqa: S104
def test_an_address_that_others_reach_needs_a_key_or_a_word(address: str) -> None:
    assert is_open(address, None)
    assert not is_open(address, "secret")


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.8.8", "::1"])
def test_on_the_own_machine_no_key_is_needed(address: str) -> None:
    assert not is_open(address, None)


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])  # noqa: S104
def test_an_open_server_is_started_on_purpose_only(
    capsys: pytest.CaptureFixture[str], host: str
) -> None:
    said = complaint(capsys, "--host", host, "--port", "0", "--model", "nothing-here")
    assert f"other machines reach {host} and need no key" in said
    assert "--api-key KEY" in said
    assert "--allow-public" in said
    for let in ({"allow_public": True}, {"api_key": "secret"}):
        listen(ServeSettings(host=host, port=0, **let)).close()


def test_whoever_opens_a_server_is_told_so() -> None:
    with started("--host", "0.0.0.0", "--allow-public") as (process, _):  # noqa: S104
        said = process.stderr.readline()
    assert said == "whoever reaches 0.0.0.0 may send requests (--allow-public)\n"


@pytest.mark.parametrize("key", ["", " ", "\t\n", " secret", "secret\n", "sec\nret"])
@pytest.mark.parametrize("way", ["option", "environment", "config", "config's environment"])
def test_a_key_that_nobody_could_send_is_refused_wherever_it_stands(
    capsys: pytest.CaptureFixture[str],
    workplace: Path,
    monkeypatch: pytest.MonkeyPatch,
    key: str,
    way: str,
) -> None:
    arguments = ["--port", "0", "--model", "nothing-here"]
    if way == "option":
        arguments += ["--api-key", key]
    elif way == "environment":
        monkeypatch.setenv("MLXFILL_API_KEY", key)
    elif way == "config":
        (workplace / "mlxfill.toml").write_text(f"[plugins.serve]\napi_key = {json.dumps(key)}\n")
    else:
        monkeypatch.setenv("MLXFILL_PLUGINS__SERVE__API_KEY", key)
    said = complaint(capsys, *arguments).lower()
    assert ("is empty" in said) or ("must not begin or end with a space" in said)
    assert "key" in said


def test_the_page_on_serving_names_every_option_and_setting() -> None:
    page = (Path(__file__).parents[3] / "docs" / "serve.md").read_text("utf-8")
    app = typer.Typer(add_completion=False)
    app.command()(serve)
    words = [word for parameter in get_command(app).params for word in parameter.opts]
    options = [word for word in words if word.startswith("--") and word != "--help"]
    assert [word for word in options if f"`{word}" not in page] == []
    settings = {field.name for field in attrs.fields(ServeSettings)}
    assert {name for name in settings if name not in page} == set()


def test_help_imports_no_server() -> None:
    script = """
import sys
from mlxfill.cli import main

main(["--help"])
print({"mlx", "starlette", "uvicorn", "pydantic", "mlxfill_serve"} & set(sys.modules))
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    lines = run.stdout.splitlines()
    assert any(line.split()[:1] == ["serve"] for line in lines)
    assert lines[-1] == "set()"
