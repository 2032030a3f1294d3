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
from pages import described

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SECTION = re.compile(r"^# --- (.+?) -+$|^def (mlxfill_\w+)\(", re.MULTILINE)
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
    facts = f"*{hook.moment}* · answers `{hook.returns}`"
    if hook.first_wins:
        facts += " · the first answer wins"
    return f"### `{hook.signature}`\n\n{facts}\n\n{described(inspect.getdoc(hook.spec) or '')}"
