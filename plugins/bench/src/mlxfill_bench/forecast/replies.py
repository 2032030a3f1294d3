"""A recorded reply as the tokens that the model would have written, and the kind of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import frozen

from mlxfill import MlxfillError

if TYPE_CHECKING:
    from mlxfill import Engine, Prompt
    from mlxfill_bench.sessions import Message, Session, Turn

REASONING, TEXT, CALLS = KINDS = ("reasoning", "text", "calls")
"""What a token of a reply belongs to."""


@frozen
class Reply:
    """``prompt`` as it is asked, the ``ids`` of the reply without its end, the kind of each.

    ``tools``, ``template_options``: those of the request, for plugins that read them.
    """

    session: str
    turn: int
    prompt: Prompt
    tools: tuple[Message, ...] | None
    template_options: Mapping[str, Any]
    ids: tuple[int, ...]
    kinds: tuple[str, ...]


def reply_of(engine: Engine, session: Session, turn: Turn) -> Reply | None:
    """The tokens of one recorded reply; None where it is empty.

    They are what the chat template writes after the prompt when the reply is the last message, up
    to the first token that ends a reply.

    :raises MlxfillError: the template does not take the messages, or writes what stood before
        the reply in another way when the reply is there.
    """
    tools, options = session.tools, session.template_options
    prompt = engine.check(turn.history, tools=tools, template_options=options)
    message = turn.recorded or {}
    write = _Writing(engine.tokenizer, turn.history, tools, options)
    whole = write.text(message)
    if not whole.startswith(prompt.text):
        raise MlxfillError("the chat template writes the prompt in another way once it is answered")
    tokenizer = engine.tokenizer
    written = whole[len(prompt.text) :]
    ids = list(tokenizer.encode(written, add_special_tokens=False))
    ends = tokenizer.eos_token_ids
    ids = ids[: next((at for at, token in enumerate(ids) if token in ends), len(ids))]
    if not ids:
        return None
    thoughts, calls = write.borders(message, whole, len(prompt.text))
    kinds = _kinds(tokenizer, ids, thoughts, calls)
    return Reply(session.id, turn.number, prompt, tools, options, tuple(ids), kinds)


class _Writing:
    """Messages as the template writes them."""

    def __init__(
        self,
        tokenizer: Any,  # noqa: ANN401 - mlx-lm's wrapper
        history: Sequence[Message] | str,
        tools: Sequence[Message] | None,
        options: Mapping[str, Any],
    ) -> None:
        self._tokenizer, self._tools, self._options = tokenizer, tools, options
        self._history = [] if isinstance(history, str) else list(history)

    def text(self, message: Mapping[str, Any]) -> str:
        """All of it with ``message`` at the end."""
        text: str = self._tokenizer.apply_chat_template(
            [*self._history, message],
            tools=None if self._tools is None else list(self._tools),
            tokenize=False,
            add_generation_prompt=False,
            **self._options,
        )
        return text

    def borders(self, message: Mapping[str, Any], whole: str, start: int) -> tuple[int, int]:
        """Characters of the reply before its text begins, and before its first call."""
        calls = len(whole)
        if message.get("tool_calls"):
            bare = {key: value for key, value in message.items() if key != "tool_calls"}
            calls = _common(whole, self.text(bare))
        content = str(message.get("content") or "").strip()
        at = whole.rfind(content, start, calls) if content else calls
        thoughts = max(at, start) if message.get("reasoning_content") else start
        return thoughts - start, max(calls, start) - start


def _common(one: str, other: str) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def _kinds(
    tokenizer: Any,  # noqa: ANN401 - mlx-lm's wrapper
    ids: Sequence[int],
    thoughts: int,
    calls: int,
) -> tuple[str, ...]:
    kinds, at = [], 0
    for token in ids:
        # A token that begins a call may begin with the end of the line before it.
        kinds.append(REASONING if at < thoughts else TEXT if at < calls else CALLS)
        at += len(tokenizer.decode([token]))
    return tuple(kinds)
