"""The list of other servers' fields in ``docs/serve.md``, from that by which the server goes."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from mlxfill_serve.dialects.table import FIELDS, ITEM, MESSAGE, PART, STREAM_OPTIONS, WRAPPERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mlxfill_serve.dialects.table import Field


def table() -> str:
    """Fields by what becomes of them."""
    becoming = [each for each in FIELDS if each.target and each.name != each.target]
    lines = [f"- `{target}`: {names}" for target, names in _by(becoming, "target")]
    lines += [f"- the fields inside {', '.join(f'`{each}`' for each in WRAPPERS)}"]
    objects = {
        "messages": MESSAGE,
        "content": PART,
        "input": ITEM,
        "stream_options": STREAM_OPTIONS,
    }
    rest = [*FIELDS, *(each for name, fields in objects.items() for each in _inside(name, fields))]
    refused = [each for each in rest if each.remedy]
    told = {each.name for each in rest if _kind(each) == "told"}
    examples = ", ".join(f"`{name}`" for name in EXAMPLES if name in told)
    harmless = sum(_kind(each) == "harmless" for each in rest)
    lines += [
        "",
        REFUSED.format(_names(refused)),
        "",
        IGNORED.format(len(told), examples, harmless),
    ]
    return "\n".join(["What is on the left is set by the fields on the right:", "", *lines])


REFUSED = "Refused, with the remedy in the error, where a path does not know them itself: {}."
IGNORED = """\
Ignored and named: {} fields, as {}. {} more, which only steer caches, devices, identifiers,
retries and display elsewhere, are ignored in silence."""
EXAMPLES = (
    *("typical_p", "tfs_z", "top_a", "top_n_sigma", "mirostat", "dry_*", "dynatemp_*", "samplers"),
    *("no_repeat_ngram_size", "num_beams", "best_of", "thinking_budget", "num_ctx", "priority"),
    *("skip_special_tokens", "return_token_ids", "truncate", "provider", "safe_prompt"),
)
"""Of the fields without effect here, those that users ask for most."""


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
