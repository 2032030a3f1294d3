"""Delimiters that a plugin names bound the spans that others copy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlxfill import Policy, Proposal, Request, hookimpl
from mlxfill_testing import Guest, engine_with, shared_model

PROMPT = [5, 9, 5, 9, 5]
OFFERED = (11, 12, 13, 14, 15)


class Naming(Guest):
    """A plugin that knows delimiters, and whose source offers the same span once."""

    @hookimpl
    def mlxfill_delimiters(self, request: Request) -> list[int]:
        return [13, *request.delimiters]


class Copies:
    def __init__(self, request: Request) -> None:
        self.delimiters = request.delimiters
        self.accepted: list[int] = []

    def propose(self, view: Any) -> Proposal | None:
        if view.length > len(PROMPT) + 1:
            return None
        return Proposal(OFFERED, Policy.ASSERT, "copy", delimiter_bound=True)

    def observe(self, ids: Sequence[int]) -> None: ...

    def resolved(self, _: Proposal, accepted: int) -> None:
        self.accepted.append(accepted)


def test_the_answer_joins_what_the_caller_gave_and_cuts_copied_spans() -> None:
    guest = Naming(sources=[Copies])
    with engine_with(shared_model("llama"), guest, trusted=["guest"]) as engine:
        result = engine.generate(PROMPT, max_tokens=12, delimiters=[40])
    (source,) = guest.seated
    assert source.delimiters == {13, 40}
    assert source.accepted == [3]
    assert result.tokens[1:4] == list(OFFERED[:3])
    assert result.faults == []


def test_a_plugin_that_fails_to_name_them_is_a_fault_of_the_request() -> None:
    class Failing(Guest):
        @hookimpl
        def mlxfill_delimiters(self) -> list[int]:
            raise RuntimeError("no idea")

    with engine_with(shared_model("llama"), Failing(sources=[Copies])) as engine:
        result = engine.generate(PROMPT, max_tokens=4)
    assert [(f.plugin, f.where) for f in result.faults] == [("guest", "mlxfill_delimiters")]
    assert len(result.tokens) == 4
