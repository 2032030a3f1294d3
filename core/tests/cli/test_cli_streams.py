"""Standard streams that whoever starts the command has closed, and other odd places to start in."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mlxfill.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable


def run(model: str, *arguments: str, closed: str, stdin: str = "") -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command with one stream closed."""
    named = [model if argument == "MODEL" else argument for argument in arguments]
    command = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-m", "mlxfill", *named]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


ASKED = ("generate", "hello", "--model", "MODEL", "--no-plugins", "-q", "-m", "3")
TALKING = ("chat", "--model", "MODEL", "--no-plugins", "-m", "3")


@pytest.mark.parametrize(
    "arguments", [ASKED, (*ASKED, "--json"), ("plugins", "list"), ("--help",), TALKING]
)
def test_closed_output_is_one_line(model: str, arguments: tuple[str, ...]) -> None:
    code, _, told = run(model, *arguments, closed=">&-", stdin="hello\n")
    assert (code, told) == (1, "error: cannot write to standard output: Bad file descriptor\n")


def test_closed_errors_leave_the_reply(model: str) -> None:
    code, out, _ = run(model, *ASKED, closed="2>&-")
    assert (code, out) == run(model, *ASKED, closed="")[:2]
    assert (code, len(out) > 1) == (0, True)


def test_closed_input_is_empty(model: str) -> None:
    told = "error: the prompt is empty: at least one character is needed\n"
    assert run(model, "generate", "--model", "MODEL", closed="<&-") == (2, "", told)
    assert run(model, *TALKING, closed="<&-") == (0, "", "")


def test_a_working_folder_that_is_gone_is_one_line(tmp_path: Path) -> None:
    leave = 'mkdir gone && cd gone && rmdir ../gone && exec "$@"'
    command = ["sh", "-c", leave, "sh", sys.executable, "-m", "mlxfill", "doctor"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    told = "error: the working folder does not exist any more: cd to one that does\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", told)


# --- encodings -------------------------------------------------------------------


class Encoded(io.TextIOWrapper):
    """A standard stream in some encoding."""

    @property
    def text(self) -> str:
        """What was written there, as the bytes that another program would read."""
        self.flush()
        return self.buffer.getvalue().decode()  # type: ignore[attr-defined,no-any-return]


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Encoded]:
    def streams(encoding: str) -> Encoded:
        out = Encoded(io.BytesIO(), encoding)
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setattr(sys, "stderr", Encoded(io.BytesIO(), encoding))
        return out

    return streams


SNOW = "\N{SNOWMAN}\N{SNOWBOARDER}"


def test_where_ascii_is_wanted_all_else_is_escaped(
    model: str, streams: Callable[[str], Encoded], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    Path("asked.jsonl").write_text(json.dumps({"id": SNOW, "prompt": "hello"}))
    out = streams("ascii")
    batch = ["--batch", "asked.jsonl", "--out", "-", "-q"]
    assert main(["generate", "--model", model, "--no-plugins", "-m", "2", *batch]) == 0
    assert out.text.isascii()
    assert json.loads(out.text)["id"] == SNOW
    page = streams("ascii")
    assert main(["doctor", "--model", model]) in {0, 1}
    assert page.text.count("#") > 6


def test_where_python_knows_ascii_only_utf_8_is_read_and_written(
    model: str, streams: Callable[[str], Encoded], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONIOENCODING", raising=False)
    answers = []
    for text in (SNOW, SNOW.encode().decode("ascii", "surrogateescape")):
        out = streams("ascii")
        told = ["--system", text, "--stop", text, "--temp", "5", "--seed", "3", "-m", "9"]
        assert main(["generate", text, "--model", model, "--no-plugins", "-q", *told]) == 0
        answers.append(out.text)
    assert answers[0] == answers[1]
    Path("mlxfill.toml").write_text(f'model = "{SNOW}"\nplugins = []\n', "utf-8")
    out = streams("ascii")
    assert main(["config", "show"]) == 0
    assert f'model = "{SNOW}"' in out.text
