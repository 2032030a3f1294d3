"""Slips of someone who writes against the Python interface, and what they are told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx
import pytest

import mlxfill
from mlxfill import ConfigError, InputError
from mlxfill_testing import engine_with, shared_model, tiny_tokenizer

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


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        (lambda _: None, "None"),
        (lambda _: 5, "5"),
        (lambda logits: logits[0], "shape (64,)"),
        (lambda logits: [[0.0] * 64] * len(logits), "[[0.0, 0.0"),
    ],
)
def test_a_logits_processor_that_gives_no_logits_is_named(answer: Any, shown: str) -> None:
    def process(_: mx.array, logits: mx.array) -> Any:
        return answer(logits)

    told = said(lambda engine: engine.generate(PROMPT, logits_processors=[process]))
    expected = "a logits processor must return logits of shape (1, 64), not "
    assert told.startswith(expected + shown)


def test_what_a_logits_processor_raises_is_the_callers() -> None:
    def process(_: mx.array, logits: mx.array) -> mx.array:
        raise LookupError(logits.ndim)

    with engine_with(shared_model("llama")) as engine, pytest.raises(LookupError, match="2"):
        engine.generate(PROMPT, logits_processors=[process])


def test_a_name_in_the_place_of_a_model_is_told_what_to_do() -> None:
    model, tokenizer = shared_model("llama"), tiny_tokenizer()
    calls: list[tuple[Callable[..., object], str]] = [
        (mlxfill.stream_generate, "x"),
        (lambda *given: mlxfill.Engine(*given[:2], plugins=[], config={}), ""),
    ]
    for call, prompt in calls:
        with pytest.raises(InputError, match=r"not the name 'tiny': mlxfill.load\('tiny'\) makes"):
            call("tiny", None, prompt)
        with pytest.raises(InputError, match=r"model must be one that mlx_lm.load gives, not None"):
            call(None, tokenizer, prompt)
        with pytest.raises(InputError, match=r"tokenizer must be the one .* not None"):
            call(model, None, prompt)
        with pytest.raises(InputError, match=r"model must .* of the type TokenizerWrapper$"):
            call(tokenizer, model, prompt)
    with pytest.raises(InputError, match=r"a folder or a name, not an object of the type Model: "):
        mlxfill.load(model)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (5, "engine_options must be a mapping of options of mlxfill.Engine, not 5"),
        (
            {"plugin": []},
            "engine_options: unknown option 'plugin'; did you mean 'plugins'?",
        ),
        ({"foo": 1}, "engine_options: unknown option 'foo'; legal: plugins, config, draft, "),
        ({5: 1}, "engine_options: unknown option 5; legal: plugins, "),
        ({"stream": None}, "engine_options: unknown option 'stream'; legal: plugins, "),
    ],
)
def test_what_is_no_option_of_an_engine_is_named(given: Any, told: str) -> None:
    model, tokenizer = shared_model("llama"), tiny_tokenizer()
    with pytest.raises(InputError) as caught:
        next(mlxfill.stream_generate(model, tokenizer, PROMPT, engine_options=given))
    assert str(caught.value).startswith(told)


@pytest.mark.parametrize("given", [5, ["mlxfill.toml"], b"mlxfill.toml"])
def test_what_is_no_config_is_named(given: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        mlxfill.load("tiny", config=given)
    told = "config must be a file, a mapping with its content or None, not "
    assert str(caught.value) == f"{told}{given!r}"


@pytest.mark.parametrize("given", [5, None, {}])
def test_what_is_no_checkpoint_is_named(given: Any) -> None:
    told = said(lambda engine: engine.resume(given))
    assert told == f"a checkpoint is a file or what on_checkpoint was handed, not {given!r}"


def test_values_of_sampling_stand_beside_those_of_mlx_lm() -> None:
    model, tokenizer = shared_model("llama"), tiny_tokenizer()
    values = {"temperature": 0.9, "seed": 4}

    def answered(**given: Any) -> list[int]:
        options = {"plugins": [], "config": {"generation": {"top_k": 1}}}
        pieces = mlxfill.stream_generate(
            model, tokenizer, PROMPT, 9, engine_options=options, **given
        )
        return [piece.token for piece in pieces]

    assert answered(**values) == answered(sampling=values) != answered()
    with pytest.raises(InputError, match="give seed inside sampling or beside it, not both"):
        answered(sampling=values, seed=4)


def test_a_result_is_shown_without_its_ids() -> None:
    with engine_with(shared_model("llama")) as engine:
        result = engine.generate(PROMPT, max_tokens=40, logprobs=True, top_logprobs=2, seed=1)
    shown, kept = repr(result), repr(result.stats)
    assert str(result.tokens)[1:-1] not in shown
    assert str(result.stats.cache_tokens)[1:-1] not in kept
    assert len(shown) < 2000 + len(repr(result.text))
    assert f"tokens=<{len(result.tokens)}>" in shown
    assert f"cache_tokens=<{len(result.stats.cache_tokens)}>" in kept
