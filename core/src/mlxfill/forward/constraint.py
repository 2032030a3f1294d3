"""Who holds a reply to its schema."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

from mlxfill.errors import InputError, PluginError
from mlxfill.forward.guarded import NamedProcessor, named
from mlxfill.installing import brought_by

if TYPE_CHECKING:
    import mlx.core as mx

    from mlxfill.contracts import Constraint, Fault, Request
    from mlxfill.plugins import PluginManager

PART = "holding the reply to its schema"


@frozen
class ActiveConstraint:
    """A plugin's constraint.  An error in it ends the request: the reply would not be held."""

    plugin: str
    constraint: Constraint

    def mask(self, tokens: mx.array, logits: mx.array) -> mx.array:
        """``Constraint.mask``."""
        return NamedProcessor(self.plugin, self.constraint.mask, PART)(tokens, logits)

    def complete(self) -> bool:
        """``Constraint.complete``."""
        with named(self.plugin, PART):
            return self.constraint.complete()


def find_constraint(
    plugins: PluginManager, request: Request, faults: list[Fault]
) -> ActiveConstraint | None:
    """Who holds this request to its schema; None when it has none.

    :raises InputError: a plugin refuses the schema, or none can hold it.
    :raises PluginError: the one that could fails.
    """
    if request.schema is None:
        return None
    tried: list[Fault] = []
    found = plugins.constraint(request, tried)
    faults += tried
    if found is not None:
        return ActiveConstraint(*found)
    if tried:
        raise PluginError(f"plugin {tried[0].plugin!r} fails on the schema: {tried[0].message}")
    cure = plugins.remedy(*brought_by("schema"))
    raise InputError(f"schema needs a plugin that holds replies to it: {cure}")
