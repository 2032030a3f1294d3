"""A tool call in JSON, passed on while it is written."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

_HEAD = re.compile(
    r'\s*\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=\{)'
)
"""A call that names its function first, up to the object with the arguments."""
_NEXT = re.compile(r"\s*\}[\s,;]*(?=\{)")
"""What stands between the arguments of a call and a call right after it."""


class CallStream:
    """The text of one call.

    Passed on is what begins with ``{"name": "...", "arguments": {`` and names one of ``offered``;
    what comes after the arguments is kept in ``rest``.
    """

    def __init__(self, offered: Collection[str]) -> None:
        self._offered = offered
        self._text = self.rest = ""
        self._begun = False
        self._depth = 0
        self._in_string = self._escaped = self._over = False

    def feed(self, text: str) -> Iterator[tuple[str | None, str]]:
        """Read on; gives name (once) and a piece of the arguments."""
        if self._over:
            self.rest += text
            return
        if self._begun:
            yield None, self._arguments(text)
            return
        self._text += text
        head = _HEAD.match(self._text)
        if head is None:
            return
        try:
            name = json.loads(head[1])
        except ValueError:
            return
        if name not in self._offered:
            return
        self._begun = True
        yield name, self._arguments(self._text[head.end() :])

    def _arguments(self, text: str) -> str:
        """The part of ``text`` that belongs to the object with the arguments."""
        for at, character in enumerate(text):
            if self._in_string:
                self._in_string = self._escaped or character != '"'
                self._escaped = character == "\\" and not self._escaped
            elif character == '"':
                self._in_string = True
            elif character in "{[":
                self._depth += 1
            elif character in "}]":
                self._depth -= 1
                if self._depth == 0:
                    self._over = True
                    self.rest = text[at + 1 :]
                    return text[: at + 1]
        return text

    def following(self) -> str:
        """The beginning of another call in the same block, "" for none so far."""
        found = _NEXT.match(self.rest)
        return self.rest[found.end() :] if found else ""
