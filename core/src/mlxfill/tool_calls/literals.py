"""Calls that are literals of a notation: Gemma's braces, Python."""

from __future__ import annotations

import ast
import re
from typing import Any

from attrs import frozen

from mlxfill.tool_calls.jsontext import BETWEEN, Found, decoded, matched, some, unique

_HEAD = re.compile(r"call:(?P<name>[\w.-]+)\{")
_PYTHON = {"true": True, "false": False, "null": None}
"""Words of JSON that templates write inside Python."""


@frozen
class Braced:
    """``call:NAME{KEY:VALUE,...}``; texts stand between two ``quote``, all else is as in JSON."""

    key: re.Pattern[str]
    value: re.Pattern[str]

    @classmethod
    def of(cls, quote: str) -> Braced:
        """The notation with one kind of quote."""
        mark = re.escape(quote)
        text = rf"{mark}(?P<text>.*?){mark}"
        return cls(
            re.compile(rf"(?:{text}|(?P<bare>[^\s,:{{}}\[\]]+))\s*:\s*", re.DOTALL),
            re.compile(rf"{text}|(?P<bare>[^\s,:\[\]{{}}][^,\[\]{{}}]*)", re.DOTALL),
        )

    def __call__(self, text: str, _: object = None) -> list[Any]:
        """The calls in ``text``.  Raises ``ValueError`` where it is anything else."""
        calls, rest = [], text.strip(BETWEEN)
        while rest:
            found = matched(_HEAD, rest, 0)
            arguments, at = self._object(rest, found.end())
            calls.append({"name": found["name"], "arguments": arguments})
            rest = rest[at:].lstrip(BETWEEN)
        return some(calls)

    def _object(self, text: str, at: int) -> tuple[Found, int]:
        """What stands between braces, and where it ends."""
        pairs: list[tuple[str, Any]] = []
        while not _ends(text, at := _next(text, at, first=not pairs, end="}"), "}"):
            key = matched(self.key, text, at)
            value, at = self._value(text, key.end())
            pairs.append((key["bare"] if key["text"] is None else key["text"], value))
        return unique(pairs), at + 1

    def _list(self, text: str, at: int) -> tuple[list[Any], int]:
        values: list[Any] = []
        while not _ends(text, at := _next(text, at, first=not values, end="]"), "]"):
            value, at = self._value(text, at)
            values.append(value)
        return values, at + 1

    def _value(self, text: str, at: int) -> tuple[Any, int]:
        if _ends(text, at, "{"):
            return self._object(text, at + 1)
        if _ends(text, at, "["):
            return self._list(text, at + 1)
        found = matched(self.value, text, at)
        if found["text"] is not None:
            return found["text"], found.end()
        bare = found["bare"].rstrip()
        try:
            return decoded(bare), found.end()
        except ValueError:
            return bare, found.end()


def _ends(text: str, at: int, mark: str) -> bool:
    if at >= len(text):
        raise ValueError("it breaks off")
    return text[at] == mark


def _next(text: str, at: int, *, first: bool, end: str) -> int:
    """Where the next item stands, or the end: past space, and past a comma but before the first."""
    at = _past_space(text, at)
    if first or _ends(text, at, end):
        return at
    if text[at] != ",":
        raise ValueError("no comma")
    return _past_space(text, at + 1)


def _past_space(text: str, at: int) -> int:
    while text[at : at + 1].isspace():
        at += 1
    return at


def python_calls(text: str, _: object = None) -> list[Any]:
    """``[NAME(KEY=VALUE, ...), ...]``, as Python writes it."""
    try:
        listed = ast.parse(text.strip(), mode="eval").body
        nodes = listed.elts if isinstance(listed, ast.List) else [listed]
        return some([_python_call(node) for node in nodes])
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError("no call") from error


def _python_call(node: ast.expr) -> Found:
    if not isinstance(node, ast.Call) or node.args:
        raise ValueError("no call")
    words = _Words()
    given = [(each.arg or "", ast.literal_eval(words.visit(each.value))) for each in node.keywords]
    return {"name": ast.unparse(node.func), "arguments": unique(given)}


class _Words(ast.NodeTransformer):
    """Puts Python's words in the place of JSON's."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(_PYTHON[node.id]) if node.id in _PYTHON else node
