"""Prompts that cannot fit the context are refused before the work that they would be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import mlxfill
from mlxfill import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def engine() -> Iterator[mlxfill.Engine]:
    with mlxfill.load("tiny", plugins=[]) as engine:
        yield engine


def forbidden(*_: object, **__: object) -> None:
    raise AssertionError("the work was done")


@pytest.mark.parametrize("messages", [False, True])
@pytest.mark.parametrize("letter", ["a", "é", " "])
def test_a_text_that_must_be_too_long_is_not_split(
    engine: mlxfill.Engine, monkeypatch: pytest.MonkeyPatch, letter: str, messages: bool
) -> None:
    text = letter * 1_000_000
    prompt: Any = [{"role": "user", "content": text + "."}] if messages else text
    monkeypatch.setattr(type(engine.tokenizer._tokenizer), "encode", forbidden)
    with pytest.raises(InputError, match=r"at least \d+ tokens; the model's context is 32768"):
        engine.check(prompt)


def test_more_messages_than_tokens_are_not_rendered(
    engine: mlxfill.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(engine.tokenizer._tokenizer), "apply_chat_template", forbidden)
    with pytest.raises(InputError, match=r"40000 messages; the model's context is 32768"):
        engine.check([{"role": "user", "content": "a"}] * 40_000)


@pytest.mark.parametrize("text", ["a" * 40_000, "the " * 9000, "<|im_end|>" * 4000])
def test_the_bound_is_below_the_true_length(engine: mlxfill.Engine, text: str) -> None:
    """What may fit is split and counted, as ever."""
    count = len(engine.tokenizer.encode(text))
    if count <= 32768:
        assert len(engine.check(text).ids) == count
    else:
        with pytest.raises(InputError, match=rf"(has {count}|at least \d+) tokens"):
            engine.check(text)
