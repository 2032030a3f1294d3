"""The table ``[plugins.spec-two-model]`` of the config file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from mlxfill import InputError, rules

if TYPE_CHECKING:
    from attrs import Attribute


def _temperature(_: object, attribute: Attribute[float | None], value: object) -> None:
    if value is None or (isinstance(value, int | float) and value is not True and value > 0):
        return
    raise InputError(f"{attribute.name} must be above 0, not {value!r} (greedy = true for 0)")


@frozen
class TwoModelSettings:
    """How drafts are chosen.  Raises ``InputError`` that names the value and its legal range.

    What the target says is never changed by these, only how often it agrees.

    ``greedy``: take the draft model's most likely token whatever the request samples with.
    ``temperature``: draw drafts at this one instead of the request's; None: the request's.  A
    greedy request has greedy drafts in any case.
    ``filters``: let the request's top-p, top-k, min-p and XTC cut the draft's distribution too.
    """

    greedy: bool = field(default=False, validator=rules.boolean)
    temperature: float | None = field(default=None, validator=_temperature)
    filters: bool = field(default=True, validator=rules.boolean)

    def __attrs_post_init__(self) -> None:
        if self.greedy and self.temperature is not None:
            raise InputError(
                f"greedy = true leaves no use for temperature {self.temperature}: drop one of them"
            )

    @property
    def namespace(self) -> str:
        """Identity of these values in the names of checkpoints."""
        return f"greedy={self.greedy},temperature={self.temperature},filters={self.filters}"

    @property
    def sampling_changes(self) -> dict[str, Any]:
        """Fields of ``Sampling`` in which drafts differ from a request that draws."""
        changes: dict[str, Any] = {}
        if self.greedy:
            changes["temperature"] = 0.0
        elif self.temperature is not None:
            changes["temperature"] = self.temperature
        if not self.filters:
            changes |= {"top_p": 0.0, "top_k": 0, "min_p": 0.0, "xtc_probability": 0.0}
        return changes
