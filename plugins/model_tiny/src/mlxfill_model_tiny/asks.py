"""Asks that the models never saw in training, and a judge of the replies."""

from __future__ import annotations

import functools
import json
import re
from itertools import islice
from random import Random
from typing import TYPE_CHECKING, Any

from attrs import frozen

from mlxfill import InputError
from mlxfill_model_tiny.corpus import draw_kind, draw_transcript, training_transcripts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_CALL = re.compile(r"<tool_call>\s*(.*?)\s*</tool_call>", re.DOTALL)
_TURN_END = "<|im_end|>"
_PYTHON_TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "array": list,
}


@frozen
class Ask:
    """A conversation in which the next turn must be one tool call.

    ``messages`` (chat messages, the last one of the user or of a tool) and ``tools``
    (OpenAI's format) go to the model; ``tool`` and ``arguments`` are what it should
    call; ``kind`` is the scenario's name.
    """

    kind: str
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    tool: str
    arguments: dict[str, Any]


@frozen
class Verdict:
    """How good a reply is; each field implies the ones before.

    ``well_formed``: nothing but one call, valid against the schema of a tool of the ask.
    ``right_tool``: of the expected tool.  ``exact``: with the expected arguments.
    """

    well_formed: bool
    right_tool: bool
    exact: bool


def held_out_asks(n: int, seed: int = 0) -> list[Ask]:
    """The first ``n`` asks of an endless, seeded series.

    The user's text of each stood in no conversation of the training set, and no two
    share it unless they are turns of one conversation (a file is read, then edited).
    Kinds whose every ask was trained on (the time in a city) do not occur.  Earlier
    turns carry their reasoning; the next one may think or not.

    :raises mlxfill.InputError: ``n`` is negative.
    """
    if n < 0:
        raise InputError(f"n is {n}: a number of asks is 0 or more")
    return list(islice(_series(seed), n))


def judge(ask: Ask, text: str) -> Verdict:
    """Compare a reply with what ``ask`` expects.

    :param text: the whole reply; a closed reasoning block before it and a turn marker
        after it do not count.
    """
    reply = text.rpartition("</think>")[2].strip().removesuffix(_TURN_END).strip()
    found = _call_in(reply)
    if found is None or not _fits(found, ask.tools):
        return Verdict(well_formed=False, right_tool=False, exact=False)
    right_tool = found["name"] == ask.tool
    exact = right_tool and found["arguments"] == ask.arguments
    return Verdict(well_formed=True, right_tool=right_tool, exact=exact)


def _series(seed: int) -> Iterator[Ask]:
    rng = Random(f"held out {seed}")  # noqa: S311 - synthetic text, no secret
    seen = set(trained_texts())
    while True:
        kind = draw_kind(rng)
        transcript = draw_transcript(rng, [kind], thinking=True)
        text = transcript.messages[1]["content"]
        if text in seen or transcript.tools is None:
            continue
        seen.add(text)
        for at, message in enumerate(transcript.messages):
            for call in message.get("tool_calls", ()):
                yield Ask(
                    kind,
                    transcript.messages[:at],
                    transcript.tools,
                    call["function"]["name"],
                    call["function"]["arguments"],
                )


@functools.cache
def trained_texts() -> frozenset[str]:
    """Everything that a user says in the training set of the shipped models."""
    return frozenset(
        message["content"]
        for transcript in training_transcripts()
        for message in transcript.messages
        if message["role"] == "user"
    )


def _call_in(reply: str) -> dict[str, Any] | None:
    match = _CALL.fullmatch(reply)
    if match is None:
        return None
    try:
        found = json.loads(match[1])
    except ValueError:
        return None
    return found if isinstance(found, dict) and found.keys() == {"name", "arguments"} else None


def _fits(found: Mapping[str, Any], tools: list[dict[str, Any]]) -> bool:
    schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in tools}
    name, arguments = found["name"], found["arguments"]
    if not isinstance(name, str) or name not in schemas or not isinstance(arguments, dict):
        return False
    schema = schemas[name]
    return set(schema["required"]) <= arguments.keys() <= schema["properties"].keys() and all(
        _is_legal(value, schema["properties"][key]) for key, value in arguments.items()
    )


def _is_legal(value: object, schema: Mapping[str, Any]) -> bool:
    """Check the part of JSON Schema that the corpus uses: type, enum, items."""
    if isinstance(value, bool) or not isinstance(value, _PYTHON_TYPES[schema["type"]]):
        return False
    if isinstance(value, list):
        return all(_is_legal(item, schema["items"]) for item in value)
    return value in schema.get("enum", [value])
