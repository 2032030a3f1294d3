"""Tokens by their names, without a copy of the vocabulary."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from mlx_lm.tokenizer_utils import TokenizerWrapper


def ids_by_name(tokenizer: TokenizerWrapper, names: Collection[str]) -> dict[str, int]:
    """Those of ``names`` that are tokens, with their ids.

    ``get_vocab`` would make a dictionary of the whole vocabulary, of 150,000 tokens and more.
    """
    ids = [each for each in tokenizer.convert_tokens_to_ids([*names]) if isinstance(each, int)]
    found = zip(tokenizer.convert_ids_to_tokens(ids), ids, strict=True)
    return {name: each for name, each in found if name in names}  # others: the unknown token
