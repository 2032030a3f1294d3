"""The settings of the plugin."""

from __future__ import annotations

from attrs import field, frozen, validators


@frozen
class DiffusionSettings:
    """``[plugins.diffusion]``.

    ``threshold``: a masked token is settled once the model gives its choice this probability;
    the surest one always is.  1: one token a forward.
    """

    threshold: float = field(default=0.9, validator=[validators.ge(0.0), validators.le(1.0)])
