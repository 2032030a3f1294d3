"""Cases 16 and 17: prompt lookup where it is tempted to guess, and where the history is long.

Conditions under which other systems of this kind went wrong; the numbers are those of the
project's list of cases.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx
import pytest
from mlx_lm.models.cache import make_prompt_cache

import mlxfill
from mlxfill_model_tiny.demo.asks import demo_asks
from mlxfill_spec_ngram import NgramSettings
from mlxfill_testing import VOCAB, plain, shared_model, tiny_tokenizer

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def exact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exact arithmetic, and nothing of the user's own."""
    mx.set_default_device(mx.cpu)
    for variable in ("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


def config(**settings: Any) -> dict[str, Any]:
    return {"gate": {"enabled": False}, "plugins": {"spec-ngram": settings}}


@pytest.mark.parametrize(("temperature", "shortest"), [(0.0, 1), (0.6, 2), (1.0, 1)])
def test_case_16_short_matches_among_tool_schemas(temperature: float, shortest: int) -> None:
    """Schemas repeat every word: lookups of one or two ids guess wrong, the text never is."""
    refused = 0
    options: dict[str, Any] = {"max_tokens": 60, "temperature": temperature, "seed": 5}
    settings = config(min_ngram=shortest, max_ngram=shortest)
    with (
        mlxfill.load("tiny", plugins=[], config={}) as slow,
        mlxfill.load("tiny", plugins=["spec-ngram"], config=settings) as fast,
    ):
        for ask in demo_asks():
            messages, tools = list(ask.messages), list(ask.tools)
            expected = slow.generate(messages, tools=tools, **options)
            result = fast.generate(messages, tools=tools, **options)
            assert result.tokens == expected.tokens
            assert result.text == expected.text
            assert result.tool_calls == expected.tool_calls
            assert result.faults == []
            refused += result.stats.spec["rejected"]
    assert refused > 0


def test_case_17_a_history_of_50_000_tokens() -> None:
    """Longest matches of 500 ids in a long session: found, right, and no different from plain."""
    model = shared_model("mamba")
    part = [(i * i * 7 + i * 13) % VOCAB for i in range(600)]
    prompt = [*part, *[(i * 31 + 5) % VOCAB for i in range(49_000)], *part]
    # States do not count their tokens: these stand for the whole prompt and cost nothing.
    caches = make_prompt_cache(model)
    mx.eval(model(mx.array([part]), cache=caches))
    warm = mlxfill.PromptCache(prompt[:-1], caches)
    expected = plain(model, prompt, 12, cache=warm)
    settings = config(max_ngram=500, min_ngram=1)
    with mlxfill.Engine(model, tiny_tokenizer(), plugins=["spec-ngram"], config=settings) as engine:
        result = engine.generate(prompt, max_tokens=12, eos_token_ids=(), cache=warm)
    assert result.tokens == expected.tokens
    assert result.faults == []
    assert result.stats.prompt_tokens > 50_000
    assert result.stats.spec["offers"] > 0


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"min_ngram": 3, "max_ngram": 2}, ["min_ngram", "3", "max_ngram", "2"]),
        ({"min_ngram": 0}, ["min_ngram", "0"]),
        ({"max_ngram": 0}, ["max_ngram", "0"]),
    ],
)
def test_case_17_lengths_that_make_no_sense_name_both(
    settings: dict[str, Any], named: list[str]
) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        NgramSettings(**settings)
    assert [word for word in named if word not in str(caught.value)] == []
    with pytest.raises(mlxfill.ConfigError, match=named[0]) as caught_at_start:
        mlxfill.load("tiny", plugins=["spec-ngram"], config=config(**settings))
    assert "\n" not in str(caught_at_start.value)


def test_case_17_a_match_longer_than_the_history() -> None:
    """``min_ngram`` 4 and a session of 3 tokens: nothing to look up, nothing goes wrong."""
    model = shared_model("llama")
    expected = plain(model, [5, 6, 7], 20).tokens
    with mlxfill.Engine(
        model,
        tiny_tokenizer(),
        plugins=["spec-ngram"],
        config=config(min_ngram=4, max_ngram=8),
    ) as engine:
        result = engine.generate([5, 6, 7], max_tokens=20, eos_token_ids=())
    assert result.tokens == expected
    assert result.faults == []
