"""The names under which the model answers."""

from __future__ import annotations

import time
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from mlxfill_serve.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

DEFAULT = "default_model"
"""mlx-lm's word for the model that the server was started with."""


@frozen
class Models:
    """The model's name, and ``NAME:ADAPTER`` for each adapter.

    ``aliases``: patterns of other names for the model, in requests.
    """

    name: str
    adapters: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    created: int = field(factory=lambda: int(time.time()))

    def listed(self) -> dict[str, Any]:
        """``GET /v1/models``."""
        return {"object": "list", "data": list(self._entries(self._names()))}

    def one(self, name: str) -> dict[str, Any]:
        """``GET /v1/models/NAME``.  Raises ``ApiError``: 404."""
        found = next(self._entries(n for n in self._names() if n == name), None)
        if found is None:
            raise self._unknown(name)
        return found

    def chosen(self, model: str | None, adapter: str | None) -> tuple[str, str | None]:
        """The name to answer under, and the adapter.

        :raises ApiError: 404 for another model, 400 for an adapter that is not mounted.
        """
        asked = model or self.name
        if asked not in self._names() and self._is_alias(asked):
            asked = self.name
        if asked not in self._names():
            raise self._unknown(asked)
        suffix = asked[len(self.name) + 1 :] or None
        if adapter is not None and adapter not in self.adapters:
            known = ", ".join(self.adapters) or "none"
            said = f"no adapter {adapter[:80]!r} is mounted; there are: {known}"
            raise ApiError(400, said, param="adapters")
        if adapter and suffix and adapter != suffix:
            said = f"model names the adapter {suffix!r}, adapters {adapter!r}: give one"
            raise ApiError(400, said, param="adapters")
        chosen = adapter or suffix
        return (f"{self.name}:{chosen}" if chosen else self.name), chosen

    def _is_alias(self, name: str) -> bool:
        return name == DEFAULT or any(fnmatchcase(name, alias) for alias in self.aliases)

    def _names(self) -> list[str]:
        return [self.name, *(f"{self.name}:{adapter}" for adapter in self.adapters)]

    def _entries(self, names: Iterable[str]) -> Iterator[dict[str, Any]]:
        for name in names:
            yield {"id": name, "object": "model", "created": self.created, "owned_by": "mlxfill"}

    def _unknown(self, name: str) -> ApiError:
        known = ", ".join(self._names())
        said = f"the model {name[:80]!r} does not exist; there are: {known}"
        return ApiError(404, said, param="model", code="model_not_found")
