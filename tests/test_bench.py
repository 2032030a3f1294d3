"""``mlxfill bench`` with what other distributions bring."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from mlxfill_bench import SHIPPED

if TYPE_CHECKING:
    from pathlib import Path


def test_the_sessions_that_come_along_are_made_by_the_generator(tmp_path: Path) -> None:
    file = tmp_path / "sessions.jsonl"
    command = [sys.executable, "-m", "mlxfill_model_tiny.sessions", "--out", str(file)]
    subprocess.run([*command, "--sessions", "24", "--seed", "0"], check=True)
    assert file.read_bytes() == SHIPPED.read_bytes()
