"""Log-probabilities: every candidate is there, and bytes are true, also of parts of characters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from transformers.convert_slow_tokenizer import bytes_to_unicode

from mlxfill.model.detokenizer import with_exact_text
from mlxfill_serve.jobs import Token
from mlxfill_serve.logprobs import TextLogprobs, TokenTexts, chat_logprobs
from tokenizers_of import tokenizers_by_kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    import httpx

    import mlxfill

SAID = "hi 😀 日本"
KINDS = ("byte level", "bytes, stripped", "bytes")


def exact(kind: str) -> Any:
    return with_exact_text(tokenizers_by_kind()[kind])


def spelled(tokenizer: Any) -> list[int]:
    """``SAID`` in bytes, of which each is a token."""
    names = tokenizer.get_vocab()
    if "<0x00>" in names:
        return [names[f"<0x{byte:02X}>"] for byte in SAID.encode()]
    signs = bytes_to_unicode()
    return [names[signs[byte]] for byte in SAID.encode()]


def tokens_of(ids: Sequence[int], tops: Sequence[int] = ()) -> list[Token]:
    return [Token("", each, "sampled", -1.0, [(top, -1.0) for top in tops]) for each in ids]


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_of_tokens_are_those_of_the_text(kind: str) -> None:
    tokenizer = exact(kind)
    ids = spelled(tokenizer)
    tokens = tokens_of(ids, ids[:5])
    told = chat_logprobs(TokenTexts(tokenizer), tokens, tokens[0])["content"]
    assert bytes(b for entry in told for b in entry["bytes"]) == SAID.encode()
    assert tokenizer.decode(ids) == SAID
    for entry in told[1:]:  # a first space may be left out
        assert [bytes(each["bytes"]) for each in entry["top_logprobs"]] == [
            bytes([byte]) for byte in SAID.encode()[:5]
        ]


def test_a_word_after_another_has_its_space_and_the_first_one_what_decode_gives_it() -> None:
    tokenizer: Any = exact("bytes, stripped")
    tokens = tokens_of(tokenizer.convert_tokens_to_ids(["▁yes", "▁no"]))
    told = chat_logprobs(TokenTexts(tokenizer), tokens, tokens[0])["content"]
    assert [entry["token"] for entry in told] == ["yes", " no"]
    assert [bytes(entry["bytes"]) for entry in told] == [b"yes", b" no"]


@pytest.mark.parametrize("kind", KINDS)
def test_parts_of_characters_are_candidates_of_their_own(kind: str) -> None:
    tokenizer = exact(kind)
    ids = spelled(tokenizer)
    parts = ids[3:7]  # of 😀
    told = TextLogprobs(tokenizer, 0)
    for token in tokens_of(ids, [*parts, ids[0]]):
        told.add(token)
    assert all(list(tops)[-1] == "h" and len(tops) == 5 for tops in told.whole["top_logprobs"])
    keys = ["bytes:\\xf0", "bytes:\\x9f", "bytes:\\x98", "bytes:\\x80"]
    assert list(told.whole["top_logprobs"][1])[:4] == keys
    assert told.whole["tokens"][:4] == ["h", "i", " ", "bytes:\\xf0"]
    assert told.whole["text_offset"] == [0, 1, 2, 3, 3, 3, 3, 4, 5, 5, 5, 6, 6, 6]


def test_two_tokens_with_one_text_are_two_candidates() -> None:
    tokenizer: Any = exact("bytes")
    ids = tokenizer.convert_tokens_to_ids(["a", "<0x61>"])
    told = TextLogprobs(tokenizer, 0).add(
        Token("a", ids[0], "sampled", -1.0, [(ids[0], -1.0), (ids[1], -2.0)])
    )
    assert told["top_logprobs"] == [{"a": -1.0, f"token_id:{ids[1]}": -2.0}]


def test_offsets_do_not_wait_for_a_stop_string(http: httpx.Client) -> None:
    asked: dict[str, Any] = {"model": "tiny", "prompt": "def load(", "logprobs": 1}
    asked.update(max_tokens=12)
    free = http.post("/v1/completions", json=asked).json()["choices"][0]
    # Its first letter begins many tokens, which are then held back until the next one.
    stop = f"{free['text'][0]}\x00"
    held = http.post("/v1/completions", json={**asked, "stop": stop}).json()["choices"][0]
    assert held["logprobs"] == free["logprobs"]
    ends = [*free["logprobs"]["text_offset"][1:], len(free["text"])]
    for token, start, end in zip(
        free["logprobs"]["tokens"], free["logprobs"]["text_offset"], ends, strict=True
    ):
        assert free["text"][start:end] == token


def test_five_candidates_are_five_on_the_wire(http: httpx.Client, plain: mlxfill.Engine) -> None:
    vocab = plain.tokenizer.get_vocab()
    parts = [
        at
        for name, at in vocab.items()
        if plain.tokenizer.decode([at]) == "\N{REPLACEMENT CHARACTER}"
    ]
    asked = {
        "model": "tiny",
        "prompt": "a",
        "logprobs": 5,
        "max_tokens": 4,
        "logit_bias": {str(part): 90 for part in parts[:6]},
    }
    told = http.post("/v1/completions", json=asked).json()["choices"][0]["logprobs"]
    assert [len(tops) for tops in told["top_logprobs"]] == [5] * 4
    assert [max(tops.values()) for tops in told["top_logprobs"]] == told["token_logprobs"]


def test_bytes_of_a_chat_reply_are_those_of_its_text(http: httpx.Client) -> None:
    asked = {
        "model": "tiny",
        "messages": [{"role": "user", "content": "Greet."}],
        "logprobs": True,
        "top_logprobs": 2,
        "chat_template_kwargs": {"enable_thinking": False},
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "said", "schema": {"const": SAID}},
        },
    }
    choice = http.post("/v1/chat/completions", json=asked).json()["choices"][0]
    entries = choice["logprobs"]["content"]
    assert SAID in choice["message"]["content"]
    said = bytes(byte for entry in entries for byte in entry["bytes"])
    assert said.decode() == choice["message"]["content"]
    assert any("\N{REPLACEMENT CHARACTER}" in entry["token"] for entry in entries)
