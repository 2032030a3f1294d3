"""The source passes what every plugin should pass, on calls that it has rows for."""

from __future__ import annotations

from functools import partial
from typing import Any

from mlxfill_fill_strict import StrictSettings, plugin
from mlxfill_testing import check_proposal_source


def test_the_source_conforms(families: Any, make_tool: Any) -> None:
    tools = [
        make_tool("get", "path", additionalProperties=False),
        make_tool("write", "path", "text", additionalProperties=False),
    ]
    sessions: list[Any] = []
    largest = 0
    for name in ("hermes", None):
        tokenizer = families.tokenizer(name)
        largest = max(largest, len(tokenizer.get_vocab()))
        request = families.request(tokenizer, tools)
        calls = (("get", {"path": "a.py"}), ("write", {"path": "b", "text": "{}"}))
        turns = (families.calls(name or "", call) for call in calls)
        sessions += [(request, families.reply(request, turn)) for turn in turns]
    found = check_proposal_source(
        partial(plugin.mlxfill_proposal_sources, settings=StrictSettings()),
        name="fill-strict",
        sessions=sessions,
        vocab_size=largest,
    )
    assert found.offers > 0
