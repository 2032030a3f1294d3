"""``examples/openai_agent.py`` does its task, and tells what fills and drafts brought."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

EXAMPLE = Path(__file__).parents[3] / "examples" / "openai_agent.py"


def agent(url: str, *options: str) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
    return subprocess.run(
        [sys.executable, str(EXAMPLE), "--url", url, *options],
        env=kept,
        capture_output=True,
        text=True,
        check=False,
    )


def test_what_goes_wrong_is_one_line(served: Any) -> None:
    with socket.socket() as taken:  # bound, and nobody listens
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        done = agent(url)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        f"nobody answers at {url}: start one with mlxfill serve, or leave --url out"
    ]
    done = agent(f"{served.url}/v1", "--model", "other")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "'other' does not exist" in line


def test_the_agent_renames_a_function(served: Any) -> None:
    done = agent(f"{served.url}/v1")
    assert done.returncode == 0, done.stderr
    before, _, files = done.stdout.partition("--- web/copy_model.py\n")
    assert "def read_order(y, items=61):" in files
    assert "send_token" not in files
    costs = [line for line in before.splitlines() if " tokens in " in line]
    assert len(costs) == 3
    assert all("filled" in line and "accepted" in line for line in costs)
    assert "0 of" not in costs[1]
