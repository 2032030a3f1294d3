"""The table of other servers' fields in ``docs/serve.md``, from that by which the server goes."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from mlxfill_serve.dialects.table import FIELDS, ITEM, MESSAGE, PART, STREAM_OPTIONS, WRAPPERS
from pages import row

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mlxfill_serve.dialects.table import Field


def table() -> str:
    """Fields by what becomes of them."""
    becoming = [each for each in FIELDS if each.target and each.name != each.target]
    lines = ["| field | becomes |", "|---|---|"]
    lines += [row(names, f"`{target}`") for target, names in _by(becoming, "target")]
    lines += [row(", ".join(f"`{each}`" for each in WRAPPERS), "the fields that it holds")]
    objects = {
        "messages": MESSAGE,
        "content": PART,
        "input": ITEM,
        "stream_options": STREAM_OPTIONS,
    }
    rest = [*FIELDS, *(each for name, fields in objects.items() for each in _inside(name, fields))]
    lines += [row(_names(each for each in rest if _kind(each) == "told"), IGNORED)]
    harmless = [each for each in rest if _kind(each) == "harmless"]
    lines += [row(HARMLESS.format(len(harmless)), "nothing")]
    lines += ["", "| refused | instead |", "|---|---|"]
    refused = [each for each in rest if each.remedy]
    lines += [row(names, remedy) for remedy, names in _by(refused, "remedy")]
    return "\n".join(lines)


IGNORED = "nothing, and its client is told"
HARMLESS = "{} more that only steer caches, devices, identifiers, retries and display elsewhere"


def _kind(each: Field) -> str:
    if each.target or each.remedy:
        return ""
    return "told" if each.told else "harmless"


def _inside(name: str, fields: Iterable[Field]) -> Iterator[Field]:
    import attrs

    return (attrs.evolve(each, name=f"{name}: {each.name}") for each in fields)


def _by(fields: Iterable[Field], what: str) -> Iterator[tuple[str, str]]:
    order = list(dict.fromkeys(getattr(each, what) for each in fields))
    fields = sorted(fields, key=lambda each: order.index(getattr(each, what)))
    for value, group in groupby(fields, key=lambda each: str(getattr(each, what))):
        yield value, _names(group)


def _names(fields: Iterable[Field]) -> str:
    """Names in marks of code; what stands before a colon is the object that they are in."""
    named = [each.name.rpartition(": ") for each in fields]
    return ", ".join(f"{place} `{name}`" if place else f"`{name}`" for place, _, name in named)
