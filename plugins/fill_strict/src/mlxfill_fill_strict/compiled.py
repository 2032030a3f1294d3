"""Compiled rows, kept for as long as their tokenizer lives."""

from __future__ import annotations

import json
from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from mlxfill_fill_strict.compiler import compile_rows

if TYPE_CHECKING:
    from mlxfill import Request
    from mlxfill_fill_strict.rows import RowSet

_MOST_KEPT = 32
"""Sets of tools that are remembered for each tokenizer; the least recently used one goes."""

_kept: WeakKeyDictionary[Any, OrderedDict[str, RowSet]] = WeakKeyDictionary()
_lock = Lock()


def compiled_rows(request: Request) -> RowSet:
    """Rows for a request: compiled once for each template, tools and render options."""
    key = _key(request)
    with _lock:
        kept = _kept.setdefault(request.tokenizer, OrderedDict())
        if key in kept:
            kept.move_to_end(key)
            return kept[key]
    compiled = compile_rows(request)
    with _lock:
        kept[key] = compiled
        while len(kept) > _MOST_KEPT:
            kept.popitem(last=False)
    return compiled


def _key(request: Request) -> str:
    template = getattr(request.tokenizer, "chat_template", None)
    given = [str(template), request.tools, request.template_options]
    return json.dumps(given, default=repr)
