"""What the demo asks: turns of a session with tools, kept in ``asks.json``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from attrs import frozen

Message = Mapping[str, Any]


@frozen
class DemoAsk:
    """One turn: the conversation so far and the tools that are offered, in OpenAI's format."""

    title: str
    messages: tuple[Message, ...]
    tools: tuple[Message, ...]

    @property
    def question(self) -> str:
        """What the user said."""
        return str(next(m["content"] for m in reversed(self.messages) if m["role"] == "user"))

    @property
    def returned_lines(self) -> int:
        """Lines that a tool returned just before; 0 when the user spoke last."""
        last = self.messages[-1]
        return len(last["content"].splitlines()) if last["role"] == "tool" else 0


def demo_asks() -> list[DemoAsk]:
    """The asks in the order in which they are shown."""
    content = json.loads((files(__package__) / "asks.json").read_text("utf-8"))
    tools = tuple(content["tools"])
    return [DemoAsk(ask["title"], tuple(ask["messages"]), tools) for ask in content["asks"]]
