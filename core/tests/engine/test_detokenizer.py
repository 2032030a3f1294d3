"""The text of a reply is what ``tokenizer.decode`` makes of its tokens, with any decoder."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx_lm.tokenizer_utils import NewlineTokenizer, TokenizerWrapper

from mlxfill import Checkpoint, Engine, stream_generate
from mlxfill.request.text import TextStream
from mlxfill_testing import shared_model
from tokenizers_of import tokenizers_by_kind

KINDS = tuple(tokenizers_by_kind())


def exact(kind: str) -> Any:
    """A tokenizer as an engine has it."""
    with Engine(shared_model("llama"), tokenizers_by_kind()[kind], plugins=[]) as engine:
        return engine.tokenizer


EXACT = {kind: exact(kind) for kind in KINDS}


def streamed(tokenizer: Any, ids: list[int]) -> list[str]:
    """What each token brings, and what is left at the end."""
    stream, parts = tokenizer.detokenizer, []
    for token in ids:
        stream.add_token(token)
        parts.append(stream.last_segment)
    stream.finalize()
    return [*parts, stream.last_segment]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=15)
@given(data=st.data())
def test_any_ids_are_the_text_that_decode_makes_of_them(kind: str, data: st.DataObject) -> None:
    tokenizer = EXACT[kind]
    # A few beyond the vocabulary: models have more rows than their tokenizers have tokens.
    ids = data.draw(st.lists(st.integers(0, len(tokenizer) + 3), max_size=40))
    assert "".join(streamed(tokenizer, ids)) == tokenizer.decode(ids)


@pytest.mark.parametrize("kind", KINDS)
def test_the_text_of_a_reply_is_what_decode_makes_of_its_tokens(kind: str) -> None:
    model = shared_model("llama", vocab_size=320)
    options: dict[str, Any] = {"max_tokens": 24, "eos_token_ids": (), "temperature": 1.0}
    kept: list[Checkpoint] = []
    with Engine(model, tokenizers_by_kind()[kind], plugins=[]) as engine:
        decode = engine.tokenizer.decode
        for seed in range(1):
            result = engine.generate([7, 9], seed=seed, **options, on_checkpoint=kept.append)
            assert result.text == decode(result.tokens)
            pieces = list(engine.stream([7, 9], seed=seed, **options))
            assert "".join(piece.text for piece in pieces) == result.text
            resumed = engine.resume(kept[-1], max_tokens=30).result()
            assert resumed.text == decode(resumed.tokens)
        asked = [{"prompt": [7, 9], "seed": seed, **options} for seed in range(2)]
        for each in engine.generate_batch(asked):
            assert each.text == decode(each.tokens)


@pytest.mark.parametrize("kind", KINDS)
def test_the_text_of_the_drop_in_is_what_decode_makes_of_its_tokens(kind: str) -> None:
    model, tokenizer = shared_model("llama", vocab_size=320), tokenizers_by_kind()[kind]
    said = list(stream_generate(model, tokenizer, [7, 9], max_tokens=30, sampler=None))
    ids = [each.token for each in said if each.token not in tokenizer.eos_token_ids]
    assert "".join(each.text for each in said) == tokenizer.decode(ids)


def test_the_tokenizer_of_the_caller_stays_as_it_is() -> None:
    tokenizer = tokenizers_by_kind()["byte level"]
    kind = type(tokenizer.detokenizer)
    with Engine(shared_model("llama"), tokenizer, plugins=[]) as engine:
        assert type(engine.tokenizer.detokenizer) is not kind
    assert type(tokenizer.detokenizer) is kind


def test_the_first_space_of_a_reply_stays() -> None:
    tokenizer = EXACT["byte level"]
    ids = tokenizer.convert_tokens_to_ids(["Ġyes", "Ġno"])
    assert streamed(tokenizer, ids) == [" yes", " no", ""]


def test_bytes_are_shown_as_soon_as_nothing_can_spoil_them() -> None:
    level, pieces = EXACT["byte level"], EXACT["bytes"]
    half = [level.convert_tokens_to_ids(each) for each in ("xðŁĺ", "Ģ", "a")]
    assert streamed(level, half) == ["x", "😀", "a", ""]
    # What follows "é" in the same run of bytes could still make two signs of it.
    run: Any = pieces.convert_tokens_to_ids(["a", "<0xC3>", "<0xA9>", "b"])
    assert streamed(pieces, run) == ["a", "", "", "éb", ""]
    assert streamed(pieces, run[:3]) == ["a", "", "", "é"]
    spoilt = pieces.convert_tokens_to_ids(["<0xC3>", "<0xA9>", "<0xFF>"])
    assert "".join(streamed(pieces, spoilt)) == pieces.decode(spoilt) == "\ufffd" * 3


def test_a_stop_string_of_bytes_fires_at_the_token_that_completes_it() -> None:
    tokenizer = EXACT["bytes"]
    stream = TextStream(tokenizer, ["é"])
    run = tokenizer.convert_tokens_to_ids(["a", "<0xC3>", "<0xA9>"])
    assert [stream.add(token) for token in run] == ["a", "", ""]
    assert stream.stopped
    assert stream.finish() == ""


def test_a_tokenizer_with_a_decode_of_its_own_is_asked() -> None:
    """``NewlineTokenizer`` of mlx-lm writes ``<n>`` for a line's end."""
    backend = tokenizers_by_kind()["no decoder"].backend_tokenizer
    own = NewlineTokenizer(tokenizer_object=backend, eos_token=EXACT["bytes"].eos_token)
    own.add_tokens(["<n>"])
    with Engine(shared_model("llama"), TokenizerWrapper(own), plugins=[]) as engine:
        ids: Any = own.convert_tokens_to_ids(["yes", "<n>", "no"])
        assert "".join(streamed(engine.tokenizer, ids)) == own.decode(ids) == "yes \n no"
