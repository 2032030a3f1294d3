"""The reference of ``docs/api.md``: what programs call and get back, from its docstrings.

Options take their types from the keywords that editors complete, their defaults from ``Options``.
"""

from __future__ import annotations

import ast
import inspect
import re
from typing import TYPE_CHECKING, cast

import mlxfill
from contracts_page import members, method, written
from mlxfill.request.keywords import RequestOptions
from mlxfill.request.options import Options
from pages import described, item, told_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ASKED = (mlxfill.Engine, mlxfill.Run, mlxfill.RowScheduler, Options, mlxfill.Sampling)
ANSWERED = (mlxfill.Result, mlxfill.Stats, mlxfill.Piece, mlxfill.PromptCache)
CLASSES: tuple[type, ...] = (*ASKED, *ANSWERED)
KEYWORDS = RequestOptions.__annotations__
MADE_ELSEWHERE = (mlxfill.Run,)
INTERNAL = {"forwarder", "made_by", "prepare"}
"""Public for the other modules of the core only."""
RAISES = re.compile(r"\n? *- raises .+")
ABSENT = re.compile(r" = None$")


def reference() -> str:
    """``load``, then a section for each class."""
    load = cast("ast.FunctionDef", _tree(mlxfill.load))
    text = RAISES.sub("", described(ast.get_docstring(load) or ""))
    return "\n\n".join(
        [f"## `load`\n\n`{method(load, 'load')}`\n\n{text}", *map(_section, CLASSES)]
    )


def unexplained() -> list[str]:
    """Members of which no docstring says what they are."""
    return [f"{each.__name__}.{head}" for each in CLASSES for head, text in _told(each) if not text]


def _section(kind: type) -> str:
    about, _ = told_of(inspect.getdoc(kind) or "")
    lines = [item(head, text) for head, text in _told(kind)]
    return "\n\n".join([f"## `{kind.__name__}`", described(about), "\n".join(lines)])


def _told(kind: type) -> Iterator[tuple[str, str]]:
    """Each member as it is written, and what its docstring says."""
    _, about = told_of(inspect.getdoc(kind) or "")
    for node, after in members(cast("ast.ClassDef", _tree(kind))):
        name, head, text = written(node, after, kind.__name__)
        if name in INTERNAL or (name == "__init__" and kind in MADE_ELSEWHERE):
            continue
        if kind is Options:
            head = f"{name}: {KEYWORDS[name].__forward_arg__} = {head.partition(' = ')[2]}"
        elif kind in ANSWERED:
            head = head.partition(" = ")[0]
        if kind is Options or kind is mlxfill.Sampling or kind in ANSWERED:
            head = head.replace(" | None", "")
        yield ABSENT.sub("", head), about.get(name, RAISES.sub("", text).strip())


def _tree(thing: type | Callable[..., object]) -> ast.stmt:
    return ast.parse(inspect.getsource(thing)).body[0]
