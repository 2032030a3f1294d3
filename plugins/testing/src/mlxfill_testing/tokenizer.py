"""A tokenizer of 64 ids for the tiny models, made in memory."""

from __future__ import annotations

from functools import cache
from typing import Any

EOS = 0
"""The id that ends a reply: ``<end>``."""
_SPECIAL = ("<end>", "<user>", "<reply>")
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
_SIGNS = " .,:;!?'\"()[]{}/\n"
_MERGED = ("th", "in", "er", "an", "the", "ing", "on", "at")
"""Each is made of all but its last letter and that letter."""
_TEMPLATE = (
    "{% for m in messages %}"
    "{% if m.role == 'user' %}<user>{% else %}<reply>{% endif %}{{ m.content }}<end>"
    "{% endfor %}"
    "{% if add_generation_prompt %}<reply>{% endif %}"
)


@cache
def tiny_tokenizer() -> Any:  # noqa: ANN401 - mlx-lm's TokenizerWrapper, untyped
    """mlx-lm's wrapper around a byte-pair tokenizer of 64 ids with a chat template.

    Ids are letters, digits, signs and a few merges (``th``, ``the``, ``ing``): text is the plain
    concatenation of its tokens, so that stop strings can span several of them.  Id 0 is
    ``<end>``, the end of a reply.
    """
    from mlx_lm.tokenizer_utils import TokenizerWrapper
    from tokenizers import AddedToken, Tokenizer, decoders, models
    from transformers import PreTrainedTokenizerFast

    pieces = [*_SPECIAL, *_LETTERS, *_SIGNS, *_MERGED]
    merges = [(piece[:-1], piece[-1]) for piece in _MERGED]
    ids = {piece: i for i, piece in enumerate(pieces)}
    plain = Tokenizer(models.BPE(ids, merges))
    plain.decoder = decoders.Fuse()
    plain.add_special_tokens([AddedToken(piece, special=True) for piece in _SPECIAL])
    fast = PreTrainedTokenizerFast(tokenizer_object=plain, eos_token=_SPECIAL[EOS])
    # It knows no words: a cache of words would keep each text that it ever saw.
    fast.backend_tokenizer.model = models.BPE(ids, merges, cache_capacity=0)
    fast.chat_template = _TEMPLATE
    return TokenizerWrapper(fast)
