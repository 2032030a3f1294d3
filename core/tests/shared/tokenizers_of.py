"""Small tokenizers of every kind of decoder, made in memory."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, Any

from mlx_lm.tokenizer_utils import (
    BPEStreamingDetokenizer,
    SPMStreamingDetokenizer,
    TokenizerWrapper,
)
from tokenizers import AddedToken, Tokenizer, decoders, models
from tokenizers.pre_tokenizers import ByteLevel
from transformers import PreTrainedTokenizerFast

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_END, _UNKNOWN = "<end>", "<unk>"
_WORDS = (
    "yes",
    "no",
    "the",
    "ing",
    "a",
    "b",
    ".",
    ",",
    "'",
    "'s",
    "n't",
    "?",
    " ",
    "\n",
    "日本",
    "😀",
)
_REPLACES = decoders.Replace("▁", " ")


def _made(
    pieces: Sequence[str],
    decoder: Any,
    model: Callable[[dict[str, int]], Any],
    detokenizer: Any = None,
    **settings: Any,
) -> Any:
    ids = {piece: at for at, piece in enumerate(dict.fromkeys([_END, *pieces, _UNKNOWN]))}
    plain = Tokenizer(model(ids))
    if decoder is not None:
        plain.decoder = decoder
    plain.add_special_tokens([AddedToken(_END, special=True)])
    plain.add_tokens(["<tool>", " <odd> "])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=plain, eos_token=_END, unk_token=_UNKNOWN, **settings
    )
    return TokenizerWrapper(fast, **({"detokenizer_class": detokenizer} if detokenizer else {}))


def _bpe(ids: dict[str, int]) -> Any:
    return models.BPE(ids, [], unk_token=_UNKNOWN)


def _unigram(ids: dict[str, int]) -> Any:
    return models.Unigram([(piece, -1.0) for piece in ids], ids[_UNKNOWN])


def _wordpiece(ids: dict[str, int]) -> Any:
    return models.WordPiece(ids, unk_token=_UNKNOWN)


def _byte_level() -> list[str]:
    """Each byte, words of several, and parts of characters joined to letters."""
    alphabet = sorted(ByteLevel.alphabet())
    pre = ByteLevel(add_prefix_space=False, use_regex=False)
    words = [pre.pre_tokenize_str(word)[0][0] for each in _WORDS for word in (each, f" {each}")]
    emoji = pre.pre_tokenize_str("x😀")[0][0]
    return [*alphabet, *words, emoji[:3], emoji[:4], emoji[3:]]


def _pieces() -> list[str]:
    """Words as SentencePiece has them."""
    words = [word.replace(" ", "▁") for word in _WORDS]
    return ["▁", "▁▁", *words, *(f"▁{word}" for word in words)]


_BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))


@cache
def tokenizers_by_kind() -> dict[str, Any]:
    """mlx-lm's wrappers, with the detokenizer that mlx-lm would choose or one that is wrong."""
    fallback = [_REPLACES, decoders.ByteFallback(), decoders.Fuse()]
    strips = decoders.Strip(" ", 1, 0)
    parts = [word if at % 2 else f"##{word}" for at, word in enumerate([*_WORDS, *_WORDS[1:]])]
    spm = [*_BYTES, *_pieces()]
    return {
        "byte level": _made(_byte_level(), decoders.ByteLevel(), _bpe, BPEStreamingDetokenizer),
        "byte level, naive": _made(_byte_level(), decoders.ByteLevel(), _bpe),
        "byte level pieces, SentencePiece decoder": _made(
            _byte_level(), decoders.Sequence([*fallback, strips]), _bpe, SPMStreamingDetokenizer
        ),
        "bytes, stripped": _made(
            spm, decoders.Sequence([*fallback, strips]), _bpe, SPMStreamingDetokenizer
        ),
        "bytes": _made(
            spm,
            decoders.Sequence(fallback),
            _bpe,
            partial(SPMStreamingDetokenizer, trim_space=False),
        ),
        "metaspace": _made(_pieces(), decoders.Metaspace(), _unigram),
        "metaspace, never first": _made(
            _pieces(), decoders.Metaspace(prepend_scheme="never"), _unigram
        ),
        "metaspace, cleaned": _made(
            _pieces(), decoders.Metaspace(), _unigram, clean_up_tokenization_spaces=True
        ),
        "word pieces": _made(parts, decoders.WordPiece(cleanup=False), _wordpiece),
        "word pieces, cleaned twice": _made(
            parts, decoders.WordPiece(), _wordpiece, clean_up_tokenization_spaces=True
        ),
        "end of word": _made(
            [*_WORDS, *(f"{word}</w>" for word in _WORDS)], decoders.BPEDecoder("</w>"), _bpe
        ),
        "no decoder": _made(_WORDS, None, _bpe),
        "BPE, cleaning ignored": _made(
            _byte_level(),
            decoders.ByteLevel(),
            _bpe,
            BPEStreamingDetokenizer,
            clean_up_tokenization_spaces=True,
        ),
    }
