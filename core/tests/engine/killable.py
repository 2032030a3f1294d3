"""Replies in processes that may be killed: a program that forks one for each line it reads.

A line is JSON: ``[path, model, seed, pause]``, the last in seconds after each token but the first
ones.  The answers are two lines: the process's number, and how it ended.  Everything is imported
before, so that a process begins at once.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from importlib import import_module
from pathlib import Path
from typing import Any

import mlx.core as mx

from mlxfill_testing import engine_with, shared_model

for module in ("mlxfill.engine.resume", "mlxfill.resume.keeper", "mlxfill.batch.scheduler"):
    import_module(module)  # names of the packages are imported when they are first used
for module in ("llama", "qwen3_5", "gemma3_text", "falcon_h1"):
    import_module(f"mlx_lm.models.{module}")

PROMPT = [7, 30, 9, 30, 11, 4]
COUNT = 120
FREELY = 10
"""The last token without a pause: by then a checkpoint is on its way."""


def generate(path: str, name: str, seed: int, pause: float) -> None:
    """Begin a reply, or go on with it; slowly enough to be killed on the way."""
    mx.set_default_device(mx.cpu)
    options: dict[str, Any] = {
        "max_tokens": COUNT,
        "eos_token_ids": (),
        "temperature": 0.8,
        "seed": seed,
    }
    with engine_with(shared_model(name)) as engine:
        run = (
            engine.resume(path)
            if Path(path).exists()
            else engine.stream(PROMPT, checkpoint=path, checkpoint_every=1, **options)
        )
        for at, _ in enumerate(run):
            time.sleep(pause if at > FREELY else 0)


def serve() -> None:
    """Answer line by line, one process at a time."""
    for line in sys.stdin:
        process = os.fork()
        if not process:
            try:
                generate(*json.loads(line))
            except BaseException:  # noqa: BLE001 - the program itself goes on
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        say(process)
        say(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))


def say(number: int) -> None:
    """Write a line."""
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    serve()
