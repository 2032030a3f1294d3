"""What a Linux machine says on which mlx was installed without a backend: one line, the remedy."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from mlxfill.plugins import scan

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Python = Any  # a function that runs Python, or mlxfill, and waits for it
CORE = "raise ImportError('libmlx.so: cannot open shared object file')"


@pytest.fixture
def python(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run this interpreter where ``import mlx.core`` fails as it does without a backend."""
    (tmp_path / "bare" / "mlx").mkdir(parents=True)
    (tmp_path / "bare" / "mlx" / "__init__.py").touch()
    (tmp_path / "bare" / "mlx" / "core.py").write_text(CORE)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "bare"), "HOME": str(tmp_path)}

    def python(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    return python


@pytest.mark.parametrize(
    "command",
    [
        "generate hello",
        "chat",
        "audit hello",
        "resume reply.ckpt",
        "demo",
        "bench",
        "bench replay",
        "tune",
        "serve --model tiny --port 0",
        "mtp split release head",
    ],
)
def test_a_command_that_needs_a_model_names_the_extra(command: str, python: Python) -> None:
    done = python("-m", "mlxfill", *command.split())
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: mlx has no backend here (libmlx.so")
    assert re.search(r"pip install '\S+\[(cpu|cuda13)\]'", line)
    assert (done.returncode, done.stdout) == (1, "")


def test_help_and_the_list_of_plugins_need_no_backend(python: Python) -> None:
    commands = [["--help"], ["plugins", "list"], ["config", "check"]]
    commands += [[*name.split(), "--help"] for name in scan().commands]
    for command in commands:
        done = python("-m", "mlxfill", *command)
        assert (done.returncode, done.stderr) == (0, ""), command


@pytest.mark.parametrize("name", ["load", "stream_generate", "CacheMark"])
def test_in_python_the_error_is_mlxfills(name: str, python: Python) -> None:
    code = (
        "import mlxfill\n"
        f"try: mlxfill.{name}\n"
        "except mlxfill.BackendMissingError as error: print(error)"
    )
    done = python("-c", code)
    assert re.search(r"pip install '\S+\[(cpu|cuda13)\]'", done.stdout), done.stderr
