"""The JSON schemas of a request: the whole of it, or those that stand in a grammar."""

from __future__ import annotations

import json
import re
from decimal import Decimal, InvalidOperation
from sys import float_info
from typing import TYPE_CHECKING, Any

from mlxfill import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mlxfill import Schema

DEEPEST = 128
"""Levels of JSON that llguidance reads."""
_IN_LARK = re.compile(r"%json\s*(?=\{)")


def parts(schema: Schema, *, exact: bool = False) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Start, end and value of each.  What is no JSON is left to llguidance, which says so.

    :param exact: decimals as ``Decimal`` rather than rounded to ``float``.
    """
    decoder = json.JSONDecoder(parse_float=_decimal if exact else _double)
    text, end = schema.text, 0
    starts = [0] if schema.kind == "json" else []
    if schema.kind == "lark":
        starts = [found.end() for found in _IN_LARK.finditer(text)]
    for start in starts:
        if start < end:  # within the one before
            continue
        try:
            value, end = decoder.raw_decode(text, start)
        except InputError:
            raise
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            yield start, end, value


def rewritten(schema: Schema, rewrite: Callable[[dict[str, Any]], None]) -> str:
    """The text in which ``rewrite`` has changed each of them."""
    written, done = [], 0
    for start, end, value in parts(schema, exact=True):
        if _too_deep(value):
            continue
        rewrite(value)
        text = json.dumps(value, ensure_ascii=False, default=_number)
        written += [schema.text[done:start], text]
        done = end
    return "".join([*written, schema.text[done:]])


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        said = f"the exponent of {text[:40]} is beyond all bounds"
        raise InputError(f"schema cannot be used: {said}") from None


def _double(text: str) -> float:
    """The nearest double, as there is no JSON for the infinite one."""
    return min(max(float(text), -float_info.max), float_info.max)


def _too_deep(value: object) -> bool:
    level = [value]
    for _ in range(DEEPEST):
        level = [
            inner
            for item in level
            if isinstance(item, dict | list)
            for inner in (item.values() if isinstance(item, dict) else item)
        ]
        if not level:
            return False
    return True


def _number(value: object) -> float:
    if not isinstance(value, Decimal):  # pragma: no cover - JSON holds nothing else
        raise InputError(f"schema is no JSON: {value!r}")
    return float(value)
