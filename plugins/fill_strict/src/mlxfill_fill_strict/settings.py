"""The table ``[plugins.fill-strict]`` of the config file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

from attrs import field, frozen

from mlxfill import InputError

if TYPE_CHECKING:
    from attrs import Attribute

PolicyName = Literal["assert", "verify"]
"""Whether spans are appended unread, or left to the model to accept."""

LEAST_SPAN = 2


def _one_of_policies(_: object, attribute: Attribute[str], value: object) -> None:
    if value not in get_args(PolicyName):
        legal = " or ".join(f'"{name}"' for name in get_args(PolicyName))
        raise InputError(f"{attribute.name} must be {legal}, not {value!r}")


def _span(_: object, attribute: Attribute[int], value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < LEAST_SPAN:
        raise InputError(
            f"{attribute.name} must be a whole number of at least {LEAST_SPAN}, not {value!r}"
        )


@frozen
class StrictSettings:
    """How to offer.  Raises ``InputError`` that names the value and its legal range.

    ``policy``: ``"assert"`` appends what template and schema fix without asking the model (needs
    a place under ``[trust] assert``, which this plugin has by default); ``"verify"`` lets
    the model accept it token by token, so the reply stays what it would be without the plugin.
    ``max_span``: most tokens offered at once; the rest of a longer span is offered next.
    """

    policy: PolicyName = field(default="assert", validator=_one_of_policies)
    max_span: int = field(default=32, validator=_span)
