"""Transcripts of coding agents, an event a line, as messages in OpenAI's form."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

Parts = list[Mapping[str, Any]]


def is_event(data: object) -> bool:
    """Whether a line is an event of a transcript: a message or a response item in an envelope."""
    if not isinstance(data, dict) or "type" not in data:
        return False
    return isinstance(data.get("message", data.get("payload")), dict) or "messages" not in data


def messages_of(events: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The conversation; what an agent wrote in several events is one message."""
    merged: list[dict[str, Any]] = []
    for message in (m for event in events for m in _messages(event)):
        last = merged[-1] if merged else {}
        if message["role"] == "assistant" == last.get("role"):
            _append(last, message)
        else:
            merged.append(message)
    return merged


def _append(last: dict[str, Any], more: Mapping[str, Any]) -> None:
    for key in ("content", "reasoning_content"):
        texts = [each[key] for each in (last, more) if each.get(key)]
        if texts:
            last[key] = "\n\n".join(texts)
    if more.get("tool_calls"):
        last["tool_calls"] = [*last.get("tool_calls", ()), *more["tool_calls"]]


def _messages(event: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    if event.get("isSidechain"):  # another agent's conversation
        return
    if isinstance(event.get("message"), dict):
        yield from _of_blocks(event["message"])
    elif isinstance(event.get("payload"), dict):
        yield from _of_item(event["payload"])


def _of_blocks(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Anthropic's form: contents are blocks of text, thoughts, uses of tools and results."""
    role, content = message.get("role"), message.get("content")
    if role not in {"user", "assistant", "system"}:
        return
    blocks = _blocks(content)
    for block in blocks:
        if block.get("type") == "tool_result":
            name = str(block.get("tool_use_id", ""))
            yield {"role": "tool", "tool_call_id": name, "content": text_of(block.get("content"))}
    calls = [
        _call(block.get("id"), block.get("name"), block.get("input"))
        for block in blocks
        if block.get("type") == "tool_use"
    ]
    thoughts = "".join(str(b.get("thinking", "")) for b in blocks if b.get("type") == "thinking")
    text = text_of(blocks)
    if text or calls or thoughts:
        yield {
            "role": role,
            "content": text,
            **({"reasoning_content": thoughts} if thoughts else {}),
            **({"tool_calls": calls} if calls else {}),
        }


def _of_item(item: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """OpenAI's response items: messages, calls and their outputs, each for itself."""
    match item.get("type"):
        case "message" if item.get("role") in {"user", "assistant", "system", "developer"}:
            role = "system" if item["role"] == "developer" else item["role"]
            yield {"role": role, "content": text_of(item.get("content"))}
        case "function_call" | "custom_tool_call":
            arguments = item.get("arguments", item.get("input"))
            call = _call(item.get("call_id"), item.get("name"), arguments)
            yield {"role": "assistant", "content": "", "tool_calls": [call]}
        case "function_call_output" | "custom_tool_call_output":
            name = str(item.get("call_id", ""))
            yield {"role": "tool", "tool_call_id": name, "content": text_of(item.get("output"))}
        case "reasoning":
            thoughts = text_of(item.get("content")) or text_of(item.get("summary"))
            if thoughts:
                yield {"role": "assistant", "content": "", "reasoning_content": thoughts}


def _call(name: object, function: object, arguments: object) -> dict[str, Any]:
    given = arguments
    if isinstance(arguments, str):
        with suppress(ValueError):
            given = json.loads(arguments)
    if not isinstance(given, dict):  # a tool that takes one text
        given = {} if given is None else {"input": given}
    return {
        "id": str(name or ""),
        "type": "function",
        "function": {"name": str(function or ""), "arguments": given},
    }


def _blocks(content: object) -> Parts:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [b for b in content if isinstance(b, dict)] if isinstance(content, list) else []


def text_of(content: object) -> str:
    """The text in a content: a string, an object with text, or blocks of it."""
    if isinstance(content, dict):
        content = [content] if "text" in content else content.get("content", "")
    blocks = _blocks(content)
    return "\n".join(b["text"] for b in blocks if isinstance(b.get("text"), str) and b["text"])
