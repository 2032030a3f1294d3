"""Whether a folder and its tokenizer can turn text into tokens.

transformers makes a tokenizer of nothing for a folder without a vocabulary: it reads every text as
no token at all, and the model answers nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlxfill.errors import ModelError, ModelNotFoundError, reason

if TYPE_CHECKING:
    from pathlib import Path

    from mlx_lm.tokenizer_utils import TokenizerWrapper

VOCABULARIES = (
    "tokenizer.json",
    "*.model",
    "*vocab*",
    "*.tiktoken",
    "tekken.json",
    "tokenization*.py",
)
"""Files that hold a vocabulary, or code that makes one."""
SENTENCE = "the cat sat on the mat, and it is 12 years old."
REMEDY = "copy the tokenizer's files from where the model came from"


def check_vocabulary_file(path: Path) -> None:
    """Raise ``ModelNotFoundError`` when nothing in the folder can be a vocabulary."""
    if not any(file for pattern in VOCABULARIES for file in path.glob(pattern)):
        raise ModelNotFoundError(f"{path} has no tokenizer.json (nor tokenizer.model): {REMEDY}")


def check_tokenizer(path: Path, tokenizer: TokenizerWrapper) -> None:
    """Raise ``ModelError`` when a plain sentence gives no token, or cannot be read."""
    try:
        ids = tokenizer.encode(SENTENCE, add_special_tokens=False)
    except Exception as error:
        message = f"{path}: its tokenizer fails on plain text ({reason(error)}): {REMEDY}"
        raise ModelError(message) from error
    if not ids:
        raise ModelError(f"{path}: its tokenizer finds no token in plain text: {REMEDY}")
