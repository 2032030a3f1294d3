"""A prompt that must be too long is refused soon, whatever kind of tokenizer a model has."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxfill import InputError
from mlxfill.chat.prompt import make_prompt
from tokenizers_of import tokenizers_by_kind

KINDS = tokenizers_by_kind()
CONTEXT = 500
TEXTS = ("yes no the ", "nothing", "日本 ", "a" * 10, "so it is, isn't it? ", "\n  b")


class Counting:
    """A tokenizer that counts the letters that it is to split."""

    def __init__(self, tokenizer: Any) -> None:
        self.letters = 0
        self._tokenizer = tokenizer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)

    def encode(self, text: str, **options: Any) -> Any:
        self.letters += len(text)
        return self._tokenizer.encode(text, **options)


# To word pieces such a text is one long word, and so one token.
@pytest.mark.parametrize("kind", [kind for kind in KINDS if not kind.startswith("word pieces")])
@pytest.mark.parametrize("text", ["yes no the ", "a, b. "])
def test_of_a_large_document_a_beginning_is_split(kind: str, text: str) -> None:
    tokenizer: Any = Counting(KINDS[kind])
    with pytest.raises(InputError, match=r"the prompt has at least \d+ tokens; the model's cont"):
        make_prompt(tokenizer, text * 100_000, None, {}, context=CONTEXT)
    assert tokenizer.letters <= 20 * CONTEXT


@given(
    st.sampled_from(sorted(KINDS)),
    st.lists(st.sampled_from(TEXTS), min_size=1, max_size=5),
    st.integers(1, 3000),
    st.integers(1, 900),
)
def test_no_prompt_is_refused_that_has_room(
    kind: str, texts: list[str], times: int, context: int
) -> None:
    tokenizer, text = KINDS[kind], ("".join(texts) * times)[:20_000]
    try:
        ids = make_prompt(tokenizer, text, None, {}, context=context).ids
    except InputError:
        ids = make_prompt(tokenizer, text, None, {}).ids
        assert len(ids) > context
    else:
        assert ids == make_prompt(tokenizer, text, None, {}).ids
