"""A conversation with an engine, whose caches are kept from turn to turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

from mlxfill.cli.terminal.writer import thoughts
from mlxfill.errors import CacheMismatchError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mlx_lm.tokenizer_utils import TokenizerWrapper

    from mlxfill.decode.run import Run
    from mlxfill.engine import Engine, PromptCache, Result


class Conversation:
    """Messages so far and the caches that hold them.

    ``open`` starts a turn, ``close`` ends it::

        run = conversation.open("Which files changed?")
        for piece in run: ...
        result = conversation.close(run)
    """

    def __init__(
        self,
        engine: Engine,
        tools: Sequence[Mapping[str, Any]] | None = None,
        options: Mapping[str, Any] | None = None,
        system: str | None = None,
    ) -> None:
        """``options``: keywords of ``Engine.stream`` that hold for every turn."""
        generation = engine.config.generation
        # The prompt cache of the engine keeps the drafter's state too, and what a template rewrites
        # costs less; but it takes no such caches.
        bounds = (("kv_bits", generation.kv_bits), ("max_kv_size", generation.max_kv_size))
        self._by_hand = any((options or {}).get(name, value) for name, value in bounds)
        self.engine, self.tools, self.options = engine, tools, dict(options or {})
        self.system = system
        self.messages: list[Mapping[str, Any]] = []
        self.last: Result | None = None
        self._cache: PromptCache | None = None
        self.reset()

    def reset(self) -> None:
        """Forget everything but the system message."""
        self.messages = [] if self.system is None else [{"role": "system", "content": self.system}]
        self._cache = None
        self._session = uuid4().hex

    def open(self, text: str, **options: Any) -> Run:  # noqa: ANN401
        """Say ``text``; the reply starts from the last turn's caches if its prompt extends them.

        :raises InputError, TemplateError: the turn did not happen.
        """
        self.messages.append({"role": "user", "content": text})
        settled = {**self.options, **options}
        try:
            if self._by_hand:
                return self._open_by_hand({**settled, "keep_cache": True})
            return self.engine.stream(
                self.messages, tools=self.tools, session=self._session, **settled
            )
        except Exception:
            self.forget_turn()
            raise

    def _open_by_hand(self, settled: Mapping[str, Any]) -> Run:
        try:
            return self.engine.stream(self.messages, tools=self.tools, cache=self._cache, **settled)
        except CacheMismatchError:  # the template writes an earlier turn in another way
            return self.engine.stream(self.messages, tools=self.tools, **settled)

    def thoughts(self, run: Run) -> Callable[[str], bool]:
        """Told the texts of its reply in turn: whether each is reasoning."""
        return thoughts(run.request)

    def close(self, run: Run) -> Result:
        """Take the reply into the conversation."""
        result = run.result()
        self.last, self._cache = result, result.cache
        self.messages.append(as_message(self.engine.tokenizer, result))
        return result

    def forget_turn(self) -> None:
        """As if the newest line had not been said."""
        if self.messages and self.messages[-1]["role"] == "user":
            self.messages.pop()


def as_message(tokenizer: TokenizerWrapper, result: Result) -> dict[str, Any]:
    """A reply as chat templates want it: reasoning and tool calls apart from the text."""
    message: dict[str, Any] = {"role": "assistant", "content": result.content}
    reasoning = result.reasoning.strip()
    if reasoning:
        message["reasoning_content"] = reasoning
    if result.tool_calls:
        message["content"] = result.content.partition(tokenizer.tool_call_start)[0].rstrip()
        message["tool_calls"] = [{"type": "function", "function": c} for c in result.tool_calls]
    return message
