"""The reference of ``docs/contracts.md``, from the docstrings of the classes themselves.

The sections of ``mlxfill.contracts`` are those of the page, and its order is the order there.
"""

from __future__ import annotations

import ast
import inspect
import re
from typing import TYPE_CHECKING, cast

from attrs import frozen

from mlxfill import contracts, sampling
from mlxfill.model import compiled
from mlxfill.rewind import mark, window
from mlxfill.tool_calls import form, probe, sections, ways
from pages import described, item, told_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    Member = ast.AnnAssign | ast.Assign | ast.FunctionDef

SECTION = re.compile(r"^# --- (.+?) -+$", re.MULTILINE)
ELSEWHERE = {
    "drafters": ((mark, "CacheMark"), (compiled, "CompiledForward"), (sampling, "Chooser")),
    "rewinders": ((window, "CacheWindow"),),
}
"""Public classes of other modules, by the section that they end."""
TOOL_CALLS = (
    (form, "CallForm"),
    (form, "ValueForm"),
    (probe, "CallProbe"),
    (ways, "CallWay"),
    (sections, "ReplySections"),
)
"""The classes of ``mlxfill.tool_calls``, in a section of their own."""


@frozen
class Contract:
    """One class: where it stands on the page, and its source."""

    section: str
    tree: ast.ClassDef

    @property
    def name(self) -> str:
        """The class."""
        return self.tree.name


def contracts_in_order() -> Iterator[Contract]:
    """All classes of the page."""
    text = inspect.getsource(contracts)
    _, *parts = SECTION.split(text)
    for section, source in zip(parts[::2], parts[1::2], strict=True):
        classes = [each for each in ast.parse(source).body if isinstance(each, ast.ClassDef)]
        elsewhere = [_class(*each) for each in ELSEWHERE.get(section, ())]
        yield from (Contract(section, tree) for tree in (*classes, *elsewhere))
    yield from (Contract("tool calls", _class(*each)) for each in TOOL_CALLS)


def reference() -> str:
    """A section for each part of the contracts, a paragraph for each member of a class."""
    lines, section = [], ""
    for contract in contracts_in_order():
        if contract.section != section:
            section = contract.section
            lines.append(f"## {section.capitalize()}")
        lines.append(_class_section(contract.tree))
    return "\n\n".join(lines)


def _class(module: object, name: str) -> ast.ClassDef:
    return cast("ast.ClassDef", ast.parse(inspect.getsource(getattr(module, name))).body[0])


def _class_section(tree: ast.ClassDef) -> str:
    about, told = told_of(ast.get_docstring(tree) or "")
    lines = []
    for node, after in members(tree):
        name, head, text = written(node, after, tree.name)
        lines.append(item(head, told.get(name, text)))
    kinds = [base.id for base in tree.bases if isinstance(base, ast.Name)]
    kind = ", ".join(f"`{name}`" for name in kinds if name != "Protocol")
    facts = f"*a {kind}*" if kind else ""
    parts = [f"### `{tree.name}`", facts, described(about), "\n".join(lines)]
    return "\n\n".join(filter(None, parts))


def members(tree: ast.ClassDef) -> Iterator[tuple[Member, ast.stmt | None]]:
    """Public fields and methods, each with the statement after it."""
    for node, after in zip(tree.body, [*tree.body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign | ast.Assign | ast.FunctionDef) and _is_shown(node):
            yield node, after


def _is_shown(node: Member) -> bool:
    name = _name(node)
    return not name.startswith("_") or name in {"__init__", "__call__"}


def _name(node: Member) -> str:
    if isinstance(node, ast.FunctionDef):
        return node.name
    return ast.unparse(node.target if isinstance(node, ast.AnnAssign) else node.targets[0])


def written(node: Member, after: ast.stmt | None, owner: str) -> tuple[str, str, str]:
    """A member's name, how it is written, and what its own docstring says."""
    told = ""
    if isinstance(node, ast.FunctionDef):
        is_property = any(ast.unparse(each).endswith("property") for each in node.decorator_list)
        head = _property(node) if is_property else method(node, owner)
        told = ast.get_docstring(node) or ""
    else:
        head = _field(node)
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            told = inspect.cleandoc(str(after.value.value))
    return _name(node), head, described(told)


def _property(node: ast.FunctionDef) -> str:
    return f"{node.name}: {ast.unparse(node.returns)}" if node.returns else node.name


def method(node: ast.FunctionDef, owner: str) -> str:
    """``name(arguments) -> answer``; that of ``__init__`` under the name of its class."""
    name = owner if node.name == "__init__" else node.name
    for each in ast.walk(node.args):  # shapes and kinds stand in the docstring
        if isinstance(each, ast.arg):
            each.annotation = None
    arguments = ast.unparse(node.args).removeprefix("self").removeprefix(", ")
    answer = ast.unparse(node.returns) if node.returns else ""
    arrow = f" -> {answer}" if answer not in {"", "None"} else ""
    return f"{name}({arguments}){arrow}"


def _field(node: ast.AnnAssign | ast.Assign) -> str:
    """``name: type = default`` without validators."""
    head = _name(node)
    if isinstance(node, ast.AnnAssign):
        head += f": {ast.unparse(node.annotation)}"
    value = node.value
    if isinstance(value, ast.Call) and ast.unparse(value.func) == "field":
        options = {word.arg: word.value for word in value.keywords}
        if "factory" in options:
            return f"{head} = {ast.unparse(options['factory'])}()"
        value = options.get("default")
    return head if value is None else f"{head} = {ast.unparse(value)}"
