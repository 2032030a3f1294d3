"""The table ``[plugins.spec-qwen-mtp]`` of the config file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

from attrs import field, frozen

from mlxfill import InputError, rules

if TYPE_CHECKING:
    from attrs import Attribute

HeldRows = Literal["true", "chained"]
"""From which hidden states the head's rows of accepted drafts come."""


def _path(_: object, attribute: Attribute[str | None], value: object) -> None:
    if value is not None and (not isinstance(value, str) or not value):
        raise InputError(f"{attribute.name} must be the path of a JSON file, not {value!r}")


@frozen
class MtpSettings:
    """How the head drafts.  Raises ``InputError`` that names the value and its legal range.

    ``draft_vocab``: a JSON file with the ascending ids that may be drafted; None: the file
    ``draft_vocab.json`` beside the weights if there is one, else the whole vocabulary.
    ``held_rows``: after a round the head's cache holds rows made from the ``"true"`` hidden states
    of the target, as a prefill would make them, or keeps the ``"chained"`` ones of its own
    guesses, as mlx-vlm does.
    """

    draft_vocab: str | None = field(default=None, validator=_path)
    held_rows: HeldRows = field(default="true", validator=rules.one_of(*get_args(HeldRows)))
