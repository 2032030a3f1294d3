"""``examples/openai_agent.py`` does its task, and tells what fills and drafts brought."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

EXAMPLE = Path(__file__).parents[3] / "examples" / "openai_agent.py"


def test_the_agent_renames_a_function(served: Any) -> None:
    kept = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), "--url", f"{served.url}/v1"],
        env=kept,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    before, _, files = done.stdout.partition("--- web/copy_model.py\n")
    assert "def read_order(y, items=61):" in files
    assert "send_token" not in files
    costs = [line for line in before.splitlines() if " tokens in " in line]
    assert len(costs) == 3
    assert all("filled" in line and "accepted" in line for line in costs)
    assert "0 of" not in costs[1]
