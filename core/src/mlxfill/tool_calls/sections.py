"""The sections of a reply: what the model thinks, what it says, what it calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlxfill.tool_calls.read import read_calls

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mlx_lm.tokenizer_utils import TokenizerWrapper

REASONING, NORMAL, TOOL = "reasoning", "normal", "tool"  # mlx-lm's names
_TAIL = 16
"""Tokens at a prompt's end that show whether it opens a block of reasoning."""


class ReplySections:
    """Takes the text of a reply as it comes and tells what section each part belongs to.

    Markers and states are mlx-lm's for the model (``mlx_lm.generate.TextStateMachine``): texts
    come without the markers between them, and what may begin one is held back.  A marker inside a
    JSON string of a call is the string's, and ends no call.

    :param tokenizer: mlx-lm's wrapper.
    :param prompt_text: shows whether the template has opened a block of reasoning.
    :param tools: whether calls are sections of their own; else their markup is text.
    """

    def __init__(self, tokenizer: TokenizerWrapper, prompt_text: str, *, tools: bool) -> None:
        """Nothing is read yet."""
        from mlx_lm.generate import TextStateMachine

        self._machine = TextStateMachine(_edges(tokenizer, tools=tools))
        self._state = self._machine.make_state(_opening(tokenizer, prompt_text))
        self._tokenizer = tokenizer
        self._alone = tools and getattr(tokenizer.tool_parser, "alone", False)
        self._body, self._spoken = "", False

    @property
    def now(self) -> str:
        """The section that text now belongs to: ``reasoning``, ``normal``, ``tool`` ..."""
        return str(self._state[0])

    def feed(self, text: str) -> list[tuple[str, str]]:
        """Section and text of each part, empty ones included; a marker stood between two."""
        state, parts = self._machine.split(self._state, text)
        if TOOL in {section for section, _ in parts} and len(parts) > 1:
            return self._by_character(text)
        self._state = state
        for section, part in parts:
            self._note(section, part)
        return list(parts)

    def end(self) -> tuple[str, str]:
        """Nothing follows: what was held back."""
        self._state, rest, section = self._machine.flush(self._state)
        return section, rest

    def _by_character(self, text: str) -> list[tuple[str, str]]:
        """As ``feed``, but for markers around calls that are none."""
        found = [(self.now, "")]
        for character in text:
            before = self._state
            self._state, parts = self._machine.split(before, character)
            if len(parts) > 1 and not self._is_edge(parts):
                parts = [(before[0], before[-1] + character)]
                self._state = self._machine.make_state(before[0])
            found[-1] = (found[-1][0], found[-1][1] + parts[0][1])
            found += parts[1:]
            for section, part in parts:
                self._note(section, part)
        return found

    def _is_edge(self, parts: list[tuple[str, str]]) -> bool:
        """Whether a call may begin or end here."""
        (section, last), (to, _) = parts
        if section == TOOL:
            body = self._body + last
            return not _in_string(body) or bool(read_calls(self._tokenizer, body))
        return not (to == TOOL and self._alone and (self._spoken or last.strip()))

    def _note(self, section: str, text: str) -> None:
        self._body = self._body + text if section == TOOL else ""
        self._spoken |= section == NORMAL and bool(text.strip())


def _in_string(text: str) -> bool:
    """Whether a text ends inside a string of the JSON in it."""
    inside = escaped = False
    for character in text[max(text.find("{"), 0) :]:
        inside ^= character == '"' and not escaped
        escaped = inside and character == "\\" and not escaped
    return inside


def reply_apart(
    tokenizer: TokenizerWrapper,
    prompt_text: str,
    text: str,
    *,
    tools: bool,
) -> tuple[str, str, list[str]]:
    """What the model thought, the rest of its reply with the markup of its calls, and the calls."""
    parts = _whole(tokenizer, prompt_text, text, tools=tools)
    bodies = [part for section, part in parts if section == TOOL]
    if all(section != REASONING for section, _ in parts):
        return "", text, bodies
    reasoning = content = ""
    for at, (section, part) in enumerate(parts):
        if section == REASONING:
            reasoning += part
        elif section == TOOL:
            end = tokenizer.tool_call_end if at + 1 < len(parts) else ""
            content += f"{tokenizer.tool_call_start}{part}{end}"
        else:
            content += part
    return reasoning, content.lstrip("\n"), bodies


def calls_alone(
    tokenizer: TokenizerWrapper,
    tools: Sequence[Mapping[str, Any]],
    text: str,
) -> list[tuple[str, Any]]:
    """Names and arguments of the calls that a reply makes; empty when it holds anything else."""
    found: list[dict[str, Any]] = []
    for section, part in _whole(tokenizer, "", text, tools=True):
        calls = read_calls(tokenizer, part, tools) if section == TOOL else []
        if not calls and (section == TOOL or part.strip()):
            return []
        found += calls
    return [(call["name"], call["arguments"]) for call in found]


def _whole(
    tokenizer: TokenizerWrapper,
    prompt_text: str,
    text: str,
    *,
    tools: bool,
) -> list[tuple[str, str]]:
    """Section and text of each part of a whole reply."""
    sections = ReplySections(tokenizer, prompt_text, tools=tools)
    parts = sections.feed(text)
    last, rest = sections.end()
    return [*parts[:-1], (last, parts[-1][1] + rest)]


def end_of_prompt(tokenizer: TokenizerWrapper, ids: tuple[int, ...], text: str) -> str:
    """The end of a prompt's text, also of one that was given as ids."""
    return text or str(tokenizer.decode(list(ids[-_TAIL:])))


def _opening(tokenizer: TokenizerWrapper, prompt_text: str) -> str:
    """The section in which the reply begins."""
    if tokenizer.has_thinking and prompt_text.rstrip().endswith(tokenizer.think_start):
        return REASONING
    return str(tokenizer.response_initial_state or NORMAL)


def _edges(tokenizer: TokenizerWrapper, *, tools: bool) -> dict[str, list[tuple[str, str]]]:
    """Which marker leads from which section to which."""
    edges: dict[str, list[tuple[str, str]]] = {NORMAL: [], REASONING: [], TOOL: []}
    edges[NORMAL] += [(marker, NORMAL) for marker in tokenizer.structural_markers]
    if tokenizer.has_thinking:
        edges[NORMAL].append((tokenizer.think_start, REASONING))
        edges[REASONING].append((tokenizer.think_end, NORMAL))
    if tools and tokenizer.has_tool_calling:
        edges[NORMAL].append((tokenizer.tool_call_start, TOOL))
        if tokenizer.tool_call_end:
            edges[TOOL].append((tokenizer.tool_call_end, NORMAL))
    for section, more in tokenizer.response_transitions.items():
        kept = [(marker, to) for marker, to in more if tools or to != TOOL]
        edges.setdefault(section, []).extend(kept)
    return edges
