"""The user's own prompts: a text file, a JSON value a line, or the samples that come along."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from mlxfill import InputError, MlxfillError
from mlxfill_bench.sessions import (
    Turn,
    check_names,
    check_present,
    json_lines,
    read_messages,
    read_text,
    read_tools,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mlxfill import Engine
    from mlxfill_bench.sessions import Asked, Message

SAMPLES = Path(__file__).with_name("samples.jsonl")
"""Prompts of several kinds: tool calls, copying, free text."""
OTHER = "another_function"
RULE = "---"
"""A line of a text file that stands between prompts of several lines."""


@frozen
class Prompt:
    """One prompt: messages for the chat template, or a text to continue as it is."""

    id: str
    history: tuple[Message, ...] | str
    tools: tuple[Message, ...] | None = None
    template_options: Mapping[str, Any] = field(factory=dict)

    def turns(self) -> list[Turn]:
        """The reply."""
        return [Turn(1, self.history)]


def read_prompts(file: str | Path, *, raw: bool = False) -> list[Prompt]:
    """The prompts in a file.

    ``.jsonl``, ``.ndjson`` and ``.json``: each line holds a text, a list of messages, or an object
    with ``prompt`` or ``messages`` and, if wanted, ``id``, ``tools`` and ``template_options``.
    Any other file is text: one prompt a line, or, where there are lines ``---``, what stands
    between them.

    :param raw: texts are continued as they are, not put to the chat template.
    :raises InputError: the file cannot be read or is of another form; names file and line.
    """
    if Path(file).suffix in {".jsonl", ".ndjson", ".json"}:
        prompts = [_of_json(*line, raw=raw) for line in json_lines(file)]
    else:
        texts = _texts(read_text(file))
        prompts = [Prompt(str(number), _history(t, raw=raw)) for number, t in enumerate(texts, 1)]
    if not prompts:
        raise InputError(f"{file}: no prompts in it")
    check_names(file, "prompts", prompts)
    return prompts


def unfit(prompts: Sequence[Asked], engine: Engine) -> dict[str, str]:
    """Prompts that the model's chat template has no place for, by name, and what it leaves out.

    :raises InputError, TemplateError: it takes none of them.
    """
    reasons = {prompt.id: _left_unwritten(prompt, engine) for prompt in prompts}
    left_out = {name: why for name, why in reasons.items() if why}
    if len(left_out) == len(prompts):
        engine.check(prompts[0].turns()[0].history, tools=prompts[0].tools)
        raise InputError(f"no sample suits this model ({next(iter(left_out.values()))}): --prompts")
    return left_out


def _left_unwritten(prompt: Asked, engine: Engine) -> str:
    """What the template does not write: without it the text is the same; "" when it writes all."""
    history = prompt.turns()[0].history
    ask = partial(engine.check, template_options=prompt.template_options)
    try:
        whole = ask(history, tools=prompt.tools).text
        if prompt.tools and ask(history, tools=None).text == whole:
            return "the chat template writes no tools"
        renamed = _with_calls_renamed(history)
        if renamed and ask(renamed, tools=prompt.tools).text == whole:
            return "the chat template writes no tool calls"
    except MlxfillError as error:
        return str(error)
    return ""


def _with_calls_renamed(history: Sequence[Message] | str) -> list[Message]:
    """The same conversation with calls of another function; nothing where there are no calls."""
    messages = [] if isinstance(history, str) else list(history)
    changed = [
        {
            **message,
            "tool_calls": [
                {**call, "function": {**call["function"], "name": OTHER}}
                for call in message["tool_calls"]
            ],
        }
        if message.get("tool_calls")
        else message
        for message in messages
    ]
    return changed if changed != messages else []


def _texts(text: str) -> list[str]:
    lines = text.splitlines()
    if RULE not in lines:
        return [line for line in lines if line.strip()]
    parts: list[list[str]] = [[]]
    for line in lines:
        if line == RULE:
            parts.append([])
        else:
            parts[-1].append(line)
    return [part for part in ("\n".join(lines).strip("\n") for lines in parts) if part.strip()]


def _of_json(data: object, number: int, where: str, *, raw: bool) -> Prompt:
    given = data if isinstance(data, dict) else {"messages": data}
    if isinstance(data, str):
        given = {"prompt": data}
    check_present(given, ["prompt", "messages"], where)
    name, text = str(given.get("id", number)), given.get("prompt")
    if text is None:
        messages = read_messages(given.get("messages"), where)
        if not messages:
            raise InputError(f"{where}: messages is empty")
        return Prompt(name, messages, *read_tools(given, where))
    if not isinstance(text, str) or not text:
        raise InputError(f"{where}: prompt must be a text, not {text!r}")
    tools, options = read_tools(given, where)
    if raw and tools:
        raise InputError(f"{where}: tools need the chat template: leave out --raw")
    return Prompt(name, _history(text, raw=raw), tools, options)


def _history(text: str, *, raw: bool) -> tuple[Message, ...] | str:
    return text if raw else ({"role": "user", "content": text},)
