"""Text completions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import openai

    import mlxfill

PROMPT = "def load(path):\n    return"


def test_a_prompt_is_continued_as_the_engine_does(
    client: openai.OpenAI, plain: mlxfill.Engine
) -> None:
    expected = plain.generate(PROMPT, max_tokens=12).text
    answer = client.completions.create(model="tiny", prompt=PROMPT, max_tokens=12)
    assert answer.choices[0].text == expected
    pieces = client.completions.create(model="tiny", prompt=PROMPT, max_tokens=12, stream=True)
    assert "".join(p.choices[0].text for p in pieces) == expected


def test_prompts_may_be_ids_and_several(client: openai.OpenAI, plain: mlxfill.Engine) -> None:
    ids = plain.tokenizer.encode(PROMPT)
    one = client.completions.create(model="tiny", prompt=ids, max_tokens=6)
    several = client.completions.create(
        model="tiny", prompt=[PROMPT, "class "], max_tokens=6, n=2, temperature=0
    )
    texts = [choice.text for choice in several.choices]
    assert [choice.index for choice in several.choices] == [0, 1, 2, 3]
    assert texts[0] == texts[1] == one.choices[0].text
    assert texts[2] == texts[3] != texts[0]
    assert several.usage is not None
    assert several.usage.prompt_tokens == len(ids) + len(plain.tokenizer.encode("class "))


def test_the_prompt_is_echoed_when_asked(client: openai.OpenAI) -> None:
    ids: Any = [40, 465]
    for prompt in (PROMPT, ids):
        without = client.completions.create(model="tiny", prompt=prompt, max_tokens=3)
        answer = client.completions.create(model="tiny", prompt=prompt, max_tokens=3, echo=True)
        assert answer.choices[0].text.endswith(without.choices[0].text)
        assert len(answer.choices[0].text) > len(without.choices[0].text)


def test_logprobs_in_the_old_shape(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="tiny", prompt=PROMPT, max_tokens=4, logprobs=2)
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert len(logprobs.tokens or []) == len(logprobs.token_logprobs or []) == 4
    assert all(len(top) == 2 for top in logprobs.top_logprobs or [])
    assert logprobs.text_offset == sorted(logprobs.text_offset or [])
