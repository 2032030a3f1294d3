"""The page about hooks names every hook with exactly its arguments."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from mlxfill import hookspecs

PAGE = (Path(__file__).parents[1] / "docs" / "hooks.md").read_text("utf-8")
HOOKS = {
    name: tuple(inspect.signature(spec).parameters)
    for name, spec in vars(hookspecs).items()
    if name.startswith("mlxfill_")
}


def test_the_reference_has_every_hook_with_its_arguments() -> None:
    rows = re.findall(r"^\| `(mlxfill_\w+)\(([^)]*)\)` \|", PAGE, re.MULTILINE)
    told = {name: tuple(a.strip() for a in arguments.split(",") if a) for name, arguments in rows}
    assert told == HOOKS


def test_the_diagram_has_every_hook() -> None:
    diagram = PAGE.split("## When each hook fires")[1].split("## Reference")[0]
    assert set(re.findall(r"mlxfill_\w+", diagram)) == set(HOOKS)


def test_hooks_whose_first_answer_wins_are_marked() -> None:
    first = {name for name in HOOKS if getattr(hookspecs, name).mlxfill_spec.get("firstresult")}
    rows = [line for line in PAGE.splitlines() if line.startswith("| `mlxfill_")]
    marked = {
        match[1]
        for line in rows
        if "first answer wins" in line and (match := re.match(r"\| `(\w+)\(", line))
    }
    assert marked == first
