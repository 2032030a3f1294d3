"""The table ``[plugins.constrain]`` of the config file."""

from __future__ import annotations

from typing import Literal, get_args

from attrs import field, frozen

from mlxfill import rules

Whitespace = Literal["spaced", "compact", "flexible"]
"""Between the parts of JSON: ``{"a": 1, "b": 2}``, ``{"a":1,"b":2}``, or as the model likes."""


@frozen
class ConstrainSettings:
    """How replies are held.  Raises ``InputError`` that names the value and its legal range.

    ``forced``: append what the grammar leaves no choice about, several tokens at a time; off, the
    same tokens are decoded one by one.
    ``whitespace``: between the parts of JSON; what is fixed is also forced.
    ``max_size``: longest schema or grammar, in characters.
    """

    forced: bool = field(default=True, validator=rules.boolean)
    whitespace: Whitespace = field(default="spaced", validator=rules.one_of(*get_args(Whitespace)))
    max_size: int = field(default=200_000, validator=rules.whole(1))
