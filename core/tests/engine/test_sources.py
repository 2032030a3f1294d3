"""The option ``sources``: which plugins may propose tokens for one request."""

from __future__ import annotations

from typing import Any

import pytest

from mlxfill import InputError
from mlxfill_testing import Guest, engine_with, plain, shared_model

PROMPT = [5, 9, 5, 9, 5, 7]
COUNT = 30


def test_only_those_that_are_named_propose() -> None:
    model = shared_model("llama")
    expected = plain(model, PROMPT, COUNT)
    guest = Guest.offering([*PROMPT, *expected.tokens], 1.0)
    with engine_with(model, guest) as engine:
        for named, helped in ((None, True), (["guest"], True), ([], False)):
            result = engine.generate(PROMPT, max_tokens=COUNT, sources=named)
            assert result.tokens == expected.tokens
            assert ("scripted" in result.origins) is helped


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["gest"], "sources names 'gest', which is not on; did you mean 'guest'"),
        ("guest", "sources must be a list of names, not 'guest'"),
        ([3], "sources must be a list of names, not 3"),
        (3, "sources must be a list of names, not 3"),
    ],
)
def test_what_is_no_plugin_that_is_on_is_refused(given: Any, said: str) -> None:
    with (
        engine_with(shared_model("llama"), Guest()) as engine,
        pytest.raises(InputError, match=said),
    ):
        engine.generate(PROMPT, max_tokens=COUNT, sources=given)
