"""Rules for values, as attrs validators whose messages name the legal values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlxfill.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from attrs import Attribute

    Rule = Callable[[Any, "Attribute[Any]", Any], None]


def between(low: float, high: float | None = None) -> Rule:
    """A number of ``low`` to ``high``, both legal; None always is.  NaN never is."""
    legal = f"at least {low}" if high is None else f"{low} to {high}"

    def check(_: object, attribute: Attribute[Any], value: Any) -> None:  # noqa: ANN401
        if value is None or (low <= value and (high is None or value <= high)):
            return
        raise ConfigError(f"{attribute.name} must be {legal}, not {value!r}")

    return check


def one_of(*legal: int) -> Rule:
    """One of a few values; None always is legal."""
    words = f"{', '.join(map(str, legal[:-1]))} or {legal[-1]}"

    def check(_: object, attribute: Attribute[Any], value: Any) -> None:  # noqa: ANN401
        if value is not None and value not in legal:
            raise ConfigError(f"{attribute.name} must be {words}, not {value!r}")

    return check
