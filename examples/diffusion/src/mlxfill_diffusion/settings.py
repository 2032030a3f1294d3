"""The settings of the plugin."""

from __future__ import annotations

from attrs import field, frozen

from mlxfill import rules


@frozen
class DiffusionSettings:
    """``[plugins.diffusion]``.

    ``threshold``: a masked token is settled once the model gives its choice this probability;
    the surest one always is.  1: one token a forward.
    """

    threshold: float = field(default=0.9, validator=rules.number(0, 1))
