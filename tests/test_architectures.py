"""Every model file of mlx-lm writes under mlxfill what it writes without it.

A tiny model of each: what mlx-lm says is what mlxfill says, alone, with drafts and offers that are
right now and then, gone back, stored and gone on with, in a second turn, and beside another row.
"""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from mlxfill import DrafterError
from mlxfill.model.target import Target
from mlxfill.rewind.window import CacheWindow
from mlxfill_testing import (
    ROUNDED,
    ROUNDING,
    Guest,
    engine_with,
    plain,
    plugged,
    reference_tokens,
    shared_model,
)
from mlxfill_testing.architectures import CHANGES, UNEQUAL, UNTRIED, model_files

TRIED = [name for name in model_files() if name not in UNTRIED]
JUDGED = [name for name in TRIED if name not in UNEQUAL]
PROMPT = [(at * 37 + 11) % 64 for at in range(14)]
"""Longer than any sliding window here, of 8 tokens, and than what is chosen of many."""
COUNT, FEW = 10, 5
SAMPLED: dict[str, Any] = {"temperature": 0.8, "seed": 3}
OPTIONS: dict[str, Any] = {"max_tokens": COUNT, "eos_token_ids": ()}

each = pytest.mark.parametrize("name", TRIED)
each_judged = pytest.mark.parametrize("name", JUDGED)


@cache
def said(name: str) -> list[int]:
    return plain(shared_model(name), PROMPT, COUNT).tokens


@each
def test_alone(name: str) -> None:
    assert said(name) == reference_tokens(shared_model(name), PROMPT, COUNT)


@each_judged
def test_with_drafts(name: str) -> None:
    guest = Guest.drafting([*PROMPT, *said(name)], 0.7, default_depth=5)
    result = plugged(shared_model(name), guest, PROMPT, COUNT)
    assert result.tokens == said(name)
    assert result.faults == []
    assert 0 < result.stats.spec["accepted"] < result.stats.spec["drafted"]


@each
def test_with_offers(name: str) -> None:
    model = shared_model(name)
    expected = plain(model, PROMPT, COUNT, **SAMPLED).tokens
    guest = Guest.offering([*PROMPT, *expected], 0.8, longest=6)
    result = plugged(model, guest, PROMPT, COUNT, **SAMPLED)
    assert result.tokens == expected
    assert result.faults == []
    told = result.stats.spec
    assert told["verify_unsupported" if name in UNEQUAL else "accepted"] > 0


@pytest.mark.parametrize("name", sorted(UNEQUAL))
def test_a_model_that_would_say_something_else_is_given_no_drafts(name: str) -> None:
    guest = Guest.drafting([*PROMPT, *said(name)], 1.0)
    with pytest.raises(DrafterError, match="cannot use a drafter: "):
        plugged(shared_model(name), guest, PROMPT, COUNT)


def after(target: Target, cache: list[Any], *pieces: list[int]) -> mx.array:
    """Logits ``[V]`` after ``pieces``, each one forward."""
    logits = mx.zeros(0)
    for piece in pieces:
        if piece:
            logits = target.forward(mx.array([piece]), cache)[0, -1]
            mx.eval(logits)
    return logits


@each_judged
def test_gone_back(name: str) -> None:
    """By any number of ids, before the sliding windows are full and after they have wrapped."""
    window = [5, 9, 61, 2]
    cases = [(PROMPT[:3], 2), *((PROMPT, keep) for keep in range(len(window)))]
    with Target(shared_model(name)) as target:
        for context, keep in cases:
            ours, theirs = target.new_cache(), target.new_cache()
            after(target, ours, context)
            tried = CacheWindow(target, ours)
            mx.eval(tried.forward(mx.array([window])))
            tried.rewind(keep)
            expected = after(target, theirs, context, window[:keep], [7])
            apart = mx.abs(after(target, ours, [7]) - expected).max()
            assert apart <= (ROUNDING if name in ROUNDED else 0), (context, keep)


@each
def test_stored_and_gone_on_with(name: str) -> None:
    left: list[Any] = []
    with engine_with(shared_model(name)) as engine:
        engine.generate(PROMPT, on_checkpoint=left.append, checkpoint_every=COUNT // 2, **OPTIONS)
    with engine_with(shared_model(name)) as engine:
        assert engine.resume(left[0]).result().tokens == said(name)


@each
def test_in_a_second_turn(name: str) -> None:
    more = [*PROMPT, *said(name), 7, 8]
    with engine_with(shared_model(name)) as engine:
        engine.generate(PROMPT, session="s", **OPTIONS)
        result = engine.generate(more, session="s", **{**OPTIONS, "max_tokens": FEW})
    assert result.stats.cached_tokens > len(PROMPT)
    assert result.tokens == plain(shared_model(name), more, FEW).tokens


@each
def test_beside_another_row(name: str) -> None:
    model, short = shared_model(name), PROMPT[5:7]
    guest = Guest.offering([*PROMPT, *said(name)], 0.8)
    with engine_with(model, guest) as engine:
        requests = [{**OPTIONS, "prompt": PROMPT}, {**OPTIONS, "prompt": short, "max_tokens": FEW}]
        one, other = engine.generate_batch(requests, max_rows=2)
    assert one.tokens == said(name)
    assert other.tokens == plain(model, short, FEW).tokens


@pytest.mark.parametrize("longest", [2, 3])
def test_beside_two_rows_in_windows_of_three_ids(longest: int) -> None:
    """As many ids as rows: this file hands each layer the positions of the rows, one a row."""
    name = "bailing_hybrid"
    prompts = (PROMPT, PROMPT[5:9], PROMPT[2:10])
    alone = [plain(shared_model(name), prompt, COUNT).tokens for prompt in prompts]
    guest = Guest.offering([*PROMPT, *alone[0]], 0.5, longest=longest)
    with engine_with(shared_model(name), guest) as engine:
        results = engine.generate_batch([{**OPTIONS, "prompt": prompt} for prompt in prompts])
    assert [result.tokens for result in results] == alone


# --- the table and the page ---------------------------------------------------------------


@pytest.mark.parametrize("table", [CHANGES, UNTRIED, UNEQUAL, ROUNDED], ids=len)
def test_tables_name_model_files(table: Any) -> None:
    assert sorted(set(table) - set(model_files())) == []


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Any:
    """``tools/architectures_page.py`` as a module."""
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "tools")
    yield import_module("architectures_page")
    sys.modules.pop("architectures_page")


@each
def test_the_page_says_what_is_so(name: str, page: Any) -> None:
    assert page.facts(name) == page.said()[name], "run: python tools/reference.py"


def test_the_page_has_every_model_file(page: Any) -> None:
    assert sorted(page.said()) == sorted(model_files()), "run: python tools/reference.py"
    assert page.remapped() in page.PAGE.read_text("utf-8"), "run: python tools/reference.py"
