"""From tokens to text: stop strings fire where they would in a plain run and are never shown."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlx_lm.tokenizer_utils import TokenizerWrapper

from mlxfill import Engine
from mlxfill.model.detokenizer import with_exact_text
from mlxfill.request.text import TextStream
from mlxfill.tool_calls import ReplySections
from mlxfill_testing import (
    VOCAB,
    Guest,
    engine_with,
    plain,
    plugged,
    shared_model,
    tiny_tokenizer,
)
from tokenizers_of import tokenizers_by_kind

PROMPT = [7, 30, 9, 30, 11, 4]
stops = st.lists(
    st.text("abethnig1 .\n", min_size=1, max_size=5), min_size=1, max_size=3, unique=True
)


def expected(tokens: list[int], stop: list[str]) -> tuple[str, int]:
    """Text before the first stop string and how many tokens are read until one is complete."""
    tokenizer = tiny_tokenizer()
    for count in range(1, len(tokens) + 1):
        text = tokenizer.decode(tokens[:count])
        found = [at for at in (text.find(s) for s in stop) if at >= 0]
        if found:
            return text[: min(found)], count
    return tokenizer.decode(tokens), len(tokens)


def streamed(tokens: list[int], stop: list[str]) -> tuple[list[str], int, bool]:
    """Segments, tokens read, and whether a stop string ended it."""
    stream, shown = TextStream(with_exact_text(tiny_tokenizer()), stop), []
    for count, token in enumerate(tokens, 1):
        shown.append(stream.add(token))
        if stream.stopped:
            return shown, count, True
    return [*shown, stream.finish()], len(tokens), stream.stopped


@given(tokens=st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=40), stop=stops)
def test_text_ends_before_the_first_stop_string(tokens: list[int], stop: list[str]) -> None:
    segments, read, stopped = streamed(tokens, stop)
    text, count = expected(tokens, stop)
    assert "".join(segments) == text
    assert read == count
    assert stopped == (tiny_tokenizer().decode(tokens[:count]) != text)
    assert not any(s in "".join(segments) for s in stop)


@given(
    words=st.lists(st.sampled_from(["the", "th", "in", "ing", "e", "a", " "]), max_size=14),
    stop=st.lists(st.sampled_from(["the", "thing", "in", "ing a", "e", "e the"]), min_size=1),
)
def test_stop_strings_that_begin_alike(words: list[str], stop: list[str]) -> None:
    tokens = tiny_tokenizer().encode("".join(["x", *words]), add_special_tokens=False)
    segments, read, _ = streamed(tokens, stop)
    assert ("".join(segments), read) == expected(tokens, stop)


def test_what_may_begin_a_stop_string_is_held_back_until_that_is_decided() -> None:
    encode = tiny_tokenizer().encode
    stream = TextStream(with_exact_text(tiny_tokenizer()), ["abc"])
    shown = [stream.add(t) for t in encode("xababd", add_special_tokens=False)]
    assert shown == ["x", "", "", "ab", "", "abd"]
    assert stream.finish() == ""
    stream = TextStream(with_exact_text(tiny_tokenizer()), ["abc"])
    shown = [stream.add(t) for t in encode("xab", add_special_tokens=False)]
    assert shown == ["x", "", ""]
    assert stream.finish() == "ab"
    assert not stream.stopped


def test_a_stop_string_that_shows_only_at_the_end_is_a_stop() -> None:
    """Half a character becomes text when nothing follows: a seen stop wins over the limit."""
    tokenizer = tokenizers_by_kind()["byte level"]
    half, stop = tokenizer.convert_tokens_to_ids("ð"), "\N{REPLACEMENT CHARACTER}"
    options: dict[str, Any] = {"stop": stop, "logit_bias": {half: 1e6}}
    with Engine(shared_model("llama", vocab_size=320), tokenizer, plugins=[]) as engine:
        run = engine.stream(PROMPT, max_tokens=1, eos_token_ids=(), **options)
        last = list(run)[-1]
        result = run.result()
    assert last.finish_reason == result.finish_reason == "stop"
    assert (result.text, result.tokens) == ("", [half])


def thinking_tokenizer() -> Any:
    """Letters, with tokens that open and close thoughts."""
    raw: Any = copy.deepcopy(tiny_tokenizer()._tokenizer)
    raw.add_tokens(["<think>", "</think>"])
    return with_exact_text(TokenizerWrapper(raw))


@pytest.mark.parametrize(
    ("opened", "said", "stop", "shown"),
    [
        ("<think>", "a the b</think>in the end", ["the"], "a the b</think>in "),
        ("<think>", "the the", ["the"], "the the"),
        ("", "<think>the</think>on the", ["the", "on t"], "<think>the</think>"),
        ("", "in the end", ["the"], "in "),
        ("", "in <think>the</think> a", ["the", " a"], "in <think>the</think>"),
        ("<think>", "ab</think>c", ["b</think>", "c"], "ab</think>"),
        ("<think>", "thing</think>thing", ["th"], "thing</think>"),
    ],
)
def test_a_stop_string_in_thoughts_is_none(
    opened: str, said: str, stop: list[str], shown: str
) -> None:
    tokenizer = thinking_tokenizer()
    for whole in (True, False):
        ids = tokenizer.encode(said, add_special_tokens=False)
        if not whole:  # letter by letter, but for the markers
            parts = re.split("(</?think>)", said)
            pieces = [p for part in parts for p in ([part] if "think>" in part else part)]
            ids = tokenizer.convert_tokens_to_ids(pieces)
        stream = TextStream(tokenizer, stop, ReplySections(tokenizer, opened, tools=False))
        text = ""
        for token in ids:
            text += stream.add(token)
            if stream.stopped:
                break
        text += stream.finish()
        assert text == shown
        assert stream.stopped == (shown != said)


# --- with an engine ----------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"temperature": 1.0, "seed": 6}], ids=["greedy", "drawn"])
def test_a_stop_string_fires_inside_a_burst_where_it_would_in_a_plain_run(
    options: dict[str, Any],
) -> None:
    model = shared_model("llama")
    long = plain(model, PROMPT, 24, **options)
    truth = [*PROMPT, *long.tokens]
    for start in range(len(long.text) - 3):
        for size in (1, 3):
            stop = [long.text[start : start + size]]
            text, count = expected(long.tokens, stop)
            for guest in (Guest(), Guest.offering(truth, 1.0), Guest.drafting(truth, 1.0)):
                result = plugged(model, guest, PROMPT, 24, stop=stop, **options)
                assert result.text == text
                assert result.tokens == long.tokens[:count]
                assert result.finish_reason == "stop"


def test_a_stop_string_at_the_very_start_leaves_no_text() -> None:
    model = shared_model("llama")
    first = plain(model, PROMPT, 1)
    result = plain(model, PROMPT, 10, stop=first.text)
    assert (result.text, result.tokens, result.finish_reason) == ("", first.tokens, "stop")


def test_a_stop_wins_over_the_limit_at_the_last_token() -> None:
    model = shared_model("llama")
    for count in (1, 5):
        long = plain(model, PROMPT, count)
        result = plain(model, PROMPT, count, stop=long.text[-1])
        assert result.finish_reason == "stop"
    assert plain(model, PROMPT, 5, stop="zzzz").finish_reason == "length"


def test_the_pieces_add_up_and_the_last_one_says_why_it_ended() -> None:
    model = shared_model("llama")
    for stop in ((), ("e",), ("zzz",)):
        with engine_with(model, Guest.drafting([*PROMPT], 0.5)) as engine:
            run = engine.stream(PROMPT, max_tokens=12, eos_token_ids=(), stop=stop)
            pieces = list(run)
            result = run.result()
        assert "".join(piece.text for piece in pieces) == result.text
        assert [p.token for p in pieces if p.token is not None] == result.tokens
        assert [p.finish_reason for p in pieces[:-1]] == [None] * (len(pieces) - 1)
        assert pieces[-1].finish_reason == result.finish_reason
