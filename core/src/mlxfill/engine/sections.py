"""The sections of a reply: what the model thinks, what it says, what it calls."""

from __future__ import annotations

from typing import Any

REASONING, NORMAL, TOOL = "reasoning", "normal", "tool"  # mlx-lm's names
_TAIL = 16
"""Tokens at a prompt's end that show whether it opens a block of reasoning."""


class ReplySections:
    """Takes the text of a reply as it comes and tells what section each part belongs to.

    Markers and states are mlx-lm's for the model (``mlx_lm.generate.TextStateMachine``): texts
    come without the markers between them, and what may begin one is held back.

    :param tokenizer: mlx-lm's wrapper.
    :param prompt_text: shows whether the template has opened a block of reasoning.
    :param tools: whether calls are sections of their own; else their markup is text.
    """

    def __init__(self, tokenizer: Any, prompt_text: str, *, tools: bool) -> None:  # noqa: ANN401
        """Nothing is read yet."""
        from mlx_lm.generate import TextStateMachine

        self._machine = TextStateMachine
        edges = _edges(tokenizer, tools=tools)
        self._state = TextStateMachine(edges).make_state(_opening(tokenizer, prompt_text))

    @property
    def now(self) -> str:
        """The section that text now belongs to: ``reasoning``, ``normal``, ``tool`` ..."""
        return str(self._state[0])

    def feed(self, text: str) -> list[tuple[str, str]]:
        """Section and text of each part, empty ones included; a marker stood between two."""
        self._state, parts = self._machine.split(self._state, text)
        return list(parts)

    def end(self) -> tuple[str, str]:
        """Nothing follows: what was held back."""
        self._state, rest, section = self._machine.flush(self._state)
        return section, rest


def reasoning_and_content(
    tokenizer: Any,  # noqa: ANN401
    prompt_text: str,
    text: str,
    *,
    tools: bool,
) -> tuple[str, str]:
    """What the model thought, and the rest of its reply with the markup of its calls."""
    sections = ReplySections(tokenizer, prompt_text, tools=tools)
    parts = sections.feed(text)
    last, rest = sections.end()
    parts[-1] = (last, parts[-1][1] + rest)
    if all(section != REASONING for section, _ in parts):
        return "", text
    reasoning = content = ""
    for at, (section, part) in enumerate(parts):
        if section == REASONING:
            reasoning += part
        elif section == TOOL:
            end = tokenizer.tool_call_end if at + 1 < len(parts) else ""
            content += f"{tokenizer.tool_call_start}{part}{end}"
        else:
            content += part
    return reasoning, content.lstrip("\n")


def end_of_prompt(tokenizer: Any, ids: tuple[int, ...], text: str) -> str:  # noqa: ANN401
    """The end of a prompt's text, also of one that was given as ids."""
    return text or str(tokenizer.decode(list(ids[-_TAIL:])))


def _opening(tokenizer: Any, prompt_text: str) -> str:  # noqa: ANN401
    """The section in which the reply begins."""
    if tokenizer.has_thinking and prompt_text.rstrip().endswith(tokenizer.think_start):
        return REASONING
    return str(tokenizer.response_initial_state or NORMAL)


def _edges(tokenizer: Any, *, tools: bool) -> dict[str, list[tuple[str, str]]]:  # noqa: ANN401
    """Which marker leads from which section to which."""
    edges: dict[str, list[tuple[str, str]]] = {NORMAL: [], REASONING: [], TOOL: []}
    if tokenizer.has_thinking:
        edges[NORMAL].append((tokenizer.think_start, REASONING))
        edges[REASONING].append((tokenizer.think_end, NORMAL))
    if tools and tokenizer.has_tool_calling:
        edges[NORMAL].append((tokenizer.tool_call_start, TOOL))
        if tokenizer.tool_call_end:
            edges[TOOL].append((tokenizer.tool_call_end, NORMAL))
    for section, more in tokenizer.response_transitions.items():
        edges.setdefault(section, []).extend((marker, to) for marker, to in more)
    return edges
