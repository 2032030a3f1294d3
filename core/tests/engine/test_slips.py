"""Slips of someone who writes against the Python interface, and what they are told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx
import pytest

from mlxfill import InputError
from mlxfill.testing import engine_with, shared_model

if TYPE_CHECKING:
    from collections.abc import Callable

PROMPT = [7, 30, 9, 30, 11]


def said(ask: Any) -> str:
    """What refuses a request."""
    with engine_with(shared_model("llama")) as engine, pytest.raises(InputError) as caught:
        ask(engine)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("temp", "temperature"),
        ("top-p", "top_p"),
        ("--max-tokens", "max_tokens"),
        ("max_completion_tokens", "max_tokens"),
        ("response_format", "schema"),
        ("chat_template_kwargs", "template_options"),
        ("tempreature", "temperature"),
    ],
)
def test_what_an_option_is_called_elsewhere_leads_to_its_name(name: str, meant: str) -> None:
    hint = f"{name!r}; did you mean {meant!r}?"
    assert said(lambda engine: engine.generate(PROMPT, **{name: 1})) == f"unknown option {hint}"
    requests = [{"prompt": PROMPT}, {"prompt": PROMPT, name: 1}]
    told = said(lambda engine: engine.generate_batch(requests))
    assert told == f"request 1: unknown key {hint}"


@pytest.mark.parametrize(
    ("key", "meant"), [("promt", "prompt"), ("message", "messages"), ("tool", "tools")]
)
def test_a_misspelt_key_of_a_request_is_named(key: str, meant: str) -> None:
    told = said(lambda engine: engine.generate_batch([{key: "x"}]))
    assert told == f"request 0: unknown key {key!r}; did you mean {meant!r}?"


def test_a_closed_engine_says_so() -> None:
    with engine_with(shared_model("llama")) as engine:
        pass
    requests: list[Callable[[], object]] = [
        lambda: engine.generate(PROMPT),
        lambda: engine.stream(PROMPT),
        lambda: engine.check(PROMPT),
        lambda: engine.generate_batch([{"prompt": PROMPT}]),
        lambda: engine.resume("reply.ckpt"),
        lambda: engine.mount_adapter("formal", "adapters/formal"),
    ]
    for request in requests:
        with pytest.raises(InputError, match="the engine is closed: load the model again"):
            request()


@pytest.mark.parametrize(
    ("sampler", "shown"),
    [
        (lambda _: 5, "5"),
        (lambda _: None, "None"),
        (lambda logprobs: logprobs, "shape "),
        (mx.argmax, "shape ()"),
    ],
)
def test_a_sampler_that_gives_no_id_is_named(sampler: Any, shown: str) -> None:
    told = said(lambda engine: engine.generate(PROMPT, sampler=sampler))
    assert told.startswith(
        f"sampler must return an array of one id a row, of shape (1,), not {shown}"
    )


def test_a_result_is_shown_without_its_ids() -> None:
    with engine_with(shared_model("llama")) as engine:
        result = engine.generate(PROMPT, max_tokens=40, logprobs=True, top_logprobs=2, seed=1)
    shown, kept = repr(result), repr(result.stats)
    assert str(result.tokens)[1:-1] not in shown
    assert str(result.stats.cache_tokens)[1:-1] not in kept
    assert len(shown) < 2000 + len(repr(result.text))
    assert f"tokens=<{len(result.tokens)}>" in shown
    assert f"cache_tokens=<{len(result.stats.cache_tokens)}>" in kept
