"""``echo`` with ``logprobs``: what evaluation harnesses ask for, the score of a prompt."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import pytest

if TYPE_CHECKING:
    import httpx
    import openai

    import mlxfill

PROMPT = "def load(path):\n    return 日本 😀"


def scores(engine: mlxfill.Engine, ids: list[int]) -> list[float]:
    """Log-probabilities of all ids but the first, by one forward of the model itself."""
    logits = engine.model(mx.array([ids]))[0]
    logprobs = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
    return [logprobs[at, token].item() for at, token in enumerate(ids[1:])]


@pytest.mark.parametrize("max_tokens", [0, 1])
def test_a_prompt_is_scored(http: httpx.Client, plain: mlxfill.Engine, max_tokens: int) -> None:
    ids = plain.tokenizer.encode(PROMPT)
    asked: dict[str, Any] = {"model": "tiny", "echo": True, "logprobs": 2}
    asked["max_tokens"] = max_tokens
    for prompt in (PROMPT, ids, [ids]):
        answer = http.post("/v1/completions", json={**asked, "prompt": prompt}).json()
        choice = answer["choices"][0]
        told = choice["logprobs"]
        assert choice["text"].startswith(PROMPT)
        assert answer["usage"]["completion_tokens"] == max_tokens
        assert len(told["tokens"]) == len(ids) + max_tokens
        assert told["token_logprobs"][0] is told["top_logprobs"][0] is None
        found = told["token_logprobs"][1 : len(ids)]
        assert found == pytest.approx(scores(plain, ids), abs=1e-4)
        for token, logprob, tops in list(
            zip(told["tokens"], told["token_logprobs"], told["top_logprobs"], strict=True)
        )[1:]:
            assert len(tops) == 2
            assert logprob <= max(tops.values())
            assert tops.get(token, logprob) == logprob
        for token, at in zip(told["tokens"], told["text_offset"], strict=True):
            assert token.startswith("bytes:") or choice["text"][at:].startswith(token)


def test_it_is_streamed_as_well(client: openai.OpenAI) -> None:
    settings: Any = {"model": "tiny", "prompt": PROMPT, "echo": True, "logprobs": 1}
    whole = client.completions.create(**settings, max_tokens=3).choices[0]
    pieces = list(client.completions.create(**settings, max_tokens=3, stream=True))
    assert "".join(piece.choices[0].text for piece in pieces) == whole.text
    assert whole.logprobs is not None
    for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
        parts = [getattr(p.choices[0].logprobs, name) for p in pieces if p.choices[0].logprobs]
        assert [each for part in parts for each in part] == getattr(whole.logprobs, name)


def test_a_prompt_that_was_answered_before_is_scored_anew(http: httpx.Client) -> None:
    """The server's prompt cache holds no scores."""
    asked = {"model": "tiny", "prompt": "x" * 300, "max_tokens": 1, "logprobs": 1}
    http.post("/v1/completions", json=asked).raise_for_status()
    first, again = (
        http.post("/v1/completions", json={**asked, "echo": True}).json() for _ in range(2)
    )
    told = first["choices"][0]["logprobs"]
    assert all(math.isfinite(each) for each in told["token_logprobs"][1:])
    assert again["choices"][0]["logprobs"] == told


def test_an_engine_scores_prompts(plain: mlxfill.Engine) -> None:
    ids = plain.tokenizer.encode(PROMPT)
    result = plain.generate(ids, max_tokens=0, prompt_logprobs=0)
    assert result.tokens == []
    assert result.prompt_logprobs is not None
    assert result.prompt_logprobs[0] is None
    assert result.prompt_logprobs[1:] == pytest.approx(scores(plain, ids), abs=1e-4)
    with pytest.raises(Exception, match="leave out on_checkpoint"):
        plain.generate(ids, prompt_logprobs=0, on_checkpoint=print)
    batch = plain.generate_batch([{"prompt": ids, "max_tokens": 2, "prompt_logprobs": 3}] * 2)
    for each in batch:
        assert each.prompt_logprobs == pytest.approx(result.prompt_logprobs, abs=1e-4)
        assert each.prompt_top_logprobs is not None
        assert [len(top) for top in each.prompt_top_logprobs] == [0] + [3] * (len(ids) - 1)
