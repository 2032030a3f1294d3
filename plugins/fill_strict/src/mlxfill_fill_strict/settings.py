"""The table ``[plugins.fill-strict]`` of the config file."""

from __future__ import annotations

from typing import Literal, get_args

from attrs import field, frozen

from mlxfill import rules

PolicyName = Literal["assert", "verify"]
"""Whether spans are appended unread, or left to the model to accept."""


@frozen
class StrictSettings:
    """How to offer.  Raises ``InputError`` that names the value and its legal range.

    ``policy``: ``"assert"`` appends what template and schema fix without asking the model (needs
    a place under ``[trust] assert``, which this plugin has by default); ``"verify"`` lets
    the model accept it token by token, so the reply stays what it would be without the plugin.
    ``max_span``: most tokens offered at once; the rest of a longer span is offered next.
    """

    policy: PolicyName = field(default="assert", validator=rules.one_of(*get_args(PolicyName)))
    max_span: int = field(default=32, validator=rules.whole(2))
