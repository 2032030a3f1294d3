"""What a caller hands over as a model: a name where a loaded one is wanted is a likely slip."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from mlxfill.errors import InputError

if TYPE_CHECKING:
    from mlx import nn
    from mlx_lm.tokenizer_utils import TokenizerWrapper

_LONGEST = 60
"""Characters of a value that an error shows."""


def check_loaded(model: nn.Module, tokenizer: TokenizerWrapper) -> None:
    """Raise ``InputError`` unless they are what ``mlx_lm.load`` gives."""
    import mlx.nn as nn

    if isinstance(model, str | os.PathLike):
        name = os.fspath(model)
        raise InputError(
            f"model must be a loaded one, not the name {name!r}: mlxfill.load({name!r}) makes an"
            " engine of it, mlx_lm.load gives model and tokenizer"
        )
    if not isinstance(model, nn.Module):
        raise InputError(f"model must be one that mlx_lm.load gives, not {_shown(model)}")
    if isinstance(tokenizer, nn.Module) or not callable(getattr(tokenizer, "decode", None)):
        raise InputError(
            f"tokenizer must be the one that mlx_lm.load gives with the model, not"
            f" {_shown(tokenizer)}"
        )


def check_name(model: object) -> None:
    """Raise ``InputError`` unless it is a folder or a name."""
    if not isinstance(model, str | os.PathLike):
        raise InputError(
            f"model must be a folder or a name, not {_shown(model)}: mlxfill.Engine(model,"
            " tokenizer) takes what is loaded"
        )


def _shown(value: object) -> str:
    """A value of Python's own types as it is, of others the type."""
    plain = type(value).__module__ == "builtins"
    shown = " ".join(repr(value).split())[:_LONGEST]
    return shown if plain else f"an object of the type {type(value).__name__}"
