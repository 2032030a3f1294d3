"""Standard streams that whoever starts the command has closed, and other odd places to start in."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


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
