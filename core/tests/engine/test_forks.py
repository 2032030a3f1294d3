"""A process that is forked from one that has computed: mlx's threads stay where they were."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from patience import AT_ALL

if TYPE_CHECKING:
    from collections.abc import Mapping

PROGRAM = """
import gc, os, sys
import mlx.core as mx
mx.set_default_device(mx.cpu)
import mlxfill
from mlxfill_testing import engine_with, shared_model, tiny_tokenizer

PROMPT, OPTIONS = [7, 30, 9, 30, 11, 4], {"max_tokens": 20, "eos_token_ids": (), "seed": 1}
PATH = sys.argv[1]
model = shared_model("llama")
engine = engine_with(model)
whole = engine.generate(PROMPT, **OPTIONS).tokens
kept = []
asked = {"checkpoint": PATH, "checkpoint_every": 2, "on_checkpoint": kept.append}
run = engine.stream(PROMPT, **asked, **OPTIONS)
for _ in range(5):
    next(run)
rows = mlxfill.RowScheduler(engine)
rows.add(engine.stream(PROMPT, **OPTIONS))
child = os.fork()
if not child:
    CHILD
    sys.exit()
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
PARENT
"""

DROPS = {
    "CHILD": "del run, rows; gc.collect()",
    "PARENT": """
assert os.path.exists(PATH + ".lock")
for _ in run: pass
assert engine.resume(PATH).result().tokens == whole
print("right")
""",
}
"""What the other process holds open stays open."""


def printed(path: Path, parts: Mapping[str, str]) -> str:
    """What the two processes wrote."""
    program = PROGRAM
    for name, part in parts.items():
        program = program.replace(name, part.replace("\n", "\n" + " " * 4 * (name == "CHILD")))
    done = subprocess.run(
        [sys.executable, "-c", program, path],
        capture_output=True,
        text=True,
        timeout=AT_ALL,
        check=False,
    )
    assert not done.stderr
    return done.stdout


def test_what_is_computed_there_is_refused_in_one_line(tmp_path: Path) -> None:
    """It was waited for without an end."""
    asked = """
asked = {
    "generate": lambda: engine.generate(PROMPT, **OPTIONS),
    "another engine": lambda: engine_with(model),
    "stream_generate": lambda: next(mlxfill.stream_generate(model, tiny_tokenizer(), "a")),
    "next": lambda: next(run),
    "result": lambda: run.result(),
    "round": lambda: rows.round(),
    "save": lambda: kept[-1].save(PATH + "2"),
    "read": lambda: mlxfill.Checkpoint.load(PATH),
}
for name, ask in asked.items():
    try:
        ask()
    except (mlxfill.InputError, mlxfill.CheckpointError) as error:
        assert "this process was forked" in str(error) and "spawn" in str(error), error
        print(name)"""
    printed_names = printed(tmp_path / "file", {"CHILD": asked, "PARENT": ""}).splitlines()
    assert printed_names == [
        *("generate", "another engine", "stream_generate", "next", "result", "round"),
        *("save", "read"),
    ]


def test_what_is_dropped_there_stays_open_in_the_other_one(tmp_path: Path) -> None:
    """Its lock was removed, so that a third process could have written the same file."""
    assert printed(tmp_path / "file", DROPS) == "right\n"
