"""The hook reference of ``docs/hooks.md``, from ``mlxfill.hookspecs``: its source is the truth.

The sections of that module say when hooks fire, their order in it is the order of the diagram, and
their docstrings are the reference.
"""

from __future__ import annotations

import inspect
import re
from textwrap import wrap
from typing import TYPE_CHECKING

from attrs import frozen

from mlxfill import hookspecs
from pages import as_markdown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SECTION = re.compile(r"^# --- (.+?) -+$|^def (mlxfill_\w+)\(", re.MULTILINE)
FIELD = re.compile(r"^:(param \w+|returns|raises [^:]+):", re.MULTILINE)
WIDTH = 60
LOOP = ("the decode loop", "no hook: it calls the objects that the hooks returned")
LOOP_COMES_BEFORE = "during and after a request"


@frozen
class Hook:
    """One hook: when it fires, and what its specification says."""

    name: str
    moment: str
    spec: Callable[..., object]

    @property
    def first_wins(self) -> bool:
        """Whether the first answer that is not None ends the call."""
        options: dict[str, object] = vars(self.spec)["mlxfill_spec"]
        return bool(options["firstresult"])

    @property
    def signature(self) -> str:
        """``name(argument, ...)``."""
        return f"{self.name}({', '.join(inspect.signature(self.spec).parameters)})"

    @property
    def returns(self) -> str:
        """The annotated answer, without the names of modules."""
        annotation = str(inspect.signature(self.spec).return_annotation)
        return re.sub(r"\b[a-z]\w*\.(?=[a-zA-Z])", "", annotation)


def hooks() -> Iterator[Hook]:
    """All hooks in the order in which they fire."""
    moment = ""
    for heading, name in SECTION.findall(inspect.getsource(hookspecs)):
        if heading:
            moment = heading
        else:
            yield Hook(name, moment, getattr(hookspecs, name))


def diagram() -> str:
    """When each hook fires, as a drawing in text."""
    moments: dict[str, list[str]] = {}
    for hook in hooks():
        moments.setdefault(hook.moment, []).append(hook.name)
    lead = max(map(len, moments)) + 3
    blocks: list[str] = []
    for moment, names in moments.items():
        if moment == LOOP_COMES_BEFORE:
            blocks.append(f"{LOOP[0]:<{lead}}{LOOP[1]}")
        first, *rest = wrap(" ▶ ".join(names), WIDTH)
        lines = [f"{f'{moment} ':─<{lead - 1}} {first}"]
        lines += [f"{'  │':<{lead}}{line}" for line in rest]
        blocks.append("\n".join(lines))
    return "```text\n" + "\n  │\n".join(blocks) + "\n```"


def reference() -> str:
    """A section for each hook."""
    return "\n\n".join(_section(hook) for hook in hooks())


def _section(hook: Hook) -> str:
    told, *fields = _split(inspect.getdoc(hook.spec) or "")
    facts = f"*{hook.moment}* · answers `{hook.returns}`"
    if hook.first_wins:
        facts += " · the first answer wins"
    paragraphs = map(as_markdown, told.split("\n\n"))
    parts = [f"### `{hook.signature}`", facts, *paragraphs, "\n".join(fields)]
    return "\n\n".join(part for part in parts if part)


def _split(text: str) -> list[str]:
    """The text of a docstring, then its fields as list items."""
    marks = [match.start() for match in FIELD.finditer(text)]
    if not marks:
        return [text.strip()]
    parts = [text[a:b] for a, b in zip(marks, [*marks[1:], len(text)], strict=True)]
    return [text[: marks[0]].strip(), *map(_item, parts)]


def _item(field: str) -> str:
    _, kind, text = field.split(":", 2)
    word, _, name = kind.partition(" ")
    label = {"param": f"`{name}`", "raises": f"raises `{name}`", "returns": "returns"}[word]
    return f"- {label}: {as_markdown(text)}"
