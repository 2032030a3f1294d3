"""The table in ``docs/fill-strict.md`` is true."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from mlxfill_fill_strict import compiled_rows

PAGE = Path(__file__).parents[3] / "docs" / "fill-strict.md"
FAMILIES = [
    "hermes",
    "qwen3_coder",
    "thinking_xml",
    "llama_json",
    "llama_python_tag",
    "mistral",
    "mistral_args",
    "glm",
    "deepseek",
    "gemma",
    "kimi",
    "channels",
    "pythonic",
    "minimax",
    "closing_turns",
    "silent",
    "raising",
    "listed_arguments",
]
"""Templates in the order of the table."""
CLOSED = {"additionalProperties": False}


def table() -> list[list[str]]:
    text = PAGE.read_text(encoding="utf-8").partition("| family |")[2]
    rows = re.findall(r"^\| (?!-)(.+) \|$", text, re.MULTILINE)
    return [[cell.strip() for cell in row.split("|")] for row in rows if not row.startswith("rows")]


TEMPLATES = {path.stem for path in (Path(__file__).parent / "templates").iterdir()}


def test_the_table_has_a_row_for_each_of_these_templates() -> None:
    assert set(FAMILIES) <= TEMPLATES
    assert len(table()) == len(FAMILIES)


@pytest.mark.parametrize("name", sorted(TEMPLATES - set(FAMILIES)))
def test_what_has_no_row_is_filled_as_well(families: Any, make_tool: Any, name: str) -> None:
    tools = [make_tool("read_file", "path", **CLOSED), make_tool("list_dir", "dir", **CLOSED)]
    compiled = compiled_rows(families.request(families.tokenizer(name), tools))
    assert {row.kind for row in compiled.rows} >= {"name", "scaffold"}


@pytest.mark.parametrize("name", FAMILIES)
def test_a_row_says_what_is_compiled_and_how_much_is_injected(
    families: Any, make_tool: Any, name: str
) -> None:
    tools = [make_tool("read_file", "path", **CLOSED), make_tool("list_dir", "dir", **CLOSED)]
    request = families.request(families.tokenizer(name), tools)
    compiled = compiled_rows(request)
    _, kinds, injected, why = table()[FAMILIES.index(name)]
    assert kinds == ", ".join(sorted({row.kind for row in compiled.rows}))
    if not compiled.rows:
        assert (injected, why) == ("", compiled.why)
        return
    reply = families.reply(request, families.calls(name, ("read_file", {"path": "src/app.py"})))
    spans = families.replay(request, reply).spans
    assert injected == f"{sum(len(span.ids) for span in spans)} of {len(reply)}"
