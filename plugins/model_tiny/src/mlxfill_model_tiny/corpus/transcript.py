"""Whole conversations, drawn from the scenarios."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from attrs import frozen

from mlxfill_model_tiny.corpus import coding, daily
from mlxfill_model_tiny.corpus.facts import FAREWELLS, OPENINGS
from mlxfill_model_tiny.corpus.tools import TOOLS
from mlxfill_model_tiny.corpus.turns import Turn, as_message, say, user
from mlxfill_model_tiny.corpus.words import chance

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

TRAINING_SIZE = 6000
"""Conversations in the training set of the models in this package."""

_SCENARIOS: dict[str, tuple[Callable[[Random], list[Turn]], int]] = {
    "read": (coding.read, 4),
    "rename": (coding.rename, 4),
    "const": (coding.set_constant, 3),
    "write": (coding.write, 3),
    "search": (coding.search, 3),
    "run": (coding.run_tests, 2),
    "list": (coding.list_folder, 2),
    "weather": (daily.weather, 2),
    "time": (daily.local_time, 1),
    "convert": (daily.convert, 2),
    "calc": (daily.calculate, 2),
    "message": (daily.message, 2),
    "event": (daily.event, 2),
    "order": (daily.order, 2),
    "person": (daily.person, 2),
    "timer": (daily.timer, 2),
    "tickets": (daily.tickets, 2),
    "fact": (daily.fact, 4),
}
_KINDS = tuple(_SCENARIOS)
_WEIGHTS = tuple(weight for _, weight in _SCENARIOS.values())
_LONG_KINDS = {"rename", "read"}
_MOST_TOOLS = 3


@frozen
class Transcript:
    """One conversation.

    ``messages`` begin with the system message; ``tools`` are None where none were
    offered; ``thinking`` says whether the assistant's turns carry their reasoning;
    ``kinds`` names the scenarios, one or two.
    """

    messages: list[Turn]
    tools: list[dict[str, Any]] | None
    thinking: bool
    kinds: tuple[str, ...]


def transcripts(count: int, seed: int) -> list[Transcript]:
    """``count`` conversations, the same ones for the same seed on every machine."""
    rng = Random(seed)  # noqa: S311 - synthetic text, no secret
    return [draw_transcript(rng) for _ in range(count)]


def training_transcripts(count: int = TRAINING_SIZE, seed: int = 0) -> list[Transcript]:
    """What a model of this seed was trained on; the defaults are those of the shipped models."""
    return transcripts(count, seed + 10)


def validation_transcripts(count: int, seed: int = 0) -> list[Transcript]:
    """What training reports its progress on; short asks may occur in both sets."""
    return transcripts(count, seed + 999)


def draw_kind(rng: Random) -> str:
    """The name of one scenario, by weight."""
    return rng.choices(_KINDS, _WEIGHTS)[0]


def draw_transcript(
    rng: Random, kinds: Iterable[str] | None = None, *, thinking: bool | None = None
) -> Transcript:
    """One conversation; what is None (one or two kinds, thinking or not) is drawn too."""
    kinds = _draw_kinds(rng) if kinds is None else tuple(kinds)
    thinking = chance(rng, 0.25) if thinking is None else thinking
    turns = [turn for kind in kinds for turn in _SCENARIOS[kind][0](rng)]
    if chance(rng, 0.1):
        farewell, answer = rng.choice(FAREWELLS)
        turns += [user(farewell), say(answer, "The user is done.")]
    return transcript_of(rng, turns, kinds, thinking=thinking)


def transcript_of(
    rng: Random, turns: Sequence[Turn], kinds: tuple[str, ...], *, thinking: bool
) -> Transcript:
    """These turns as a conversation: with an opening and with the tools that are offered."""
    tools = _offered_tools(rng, turns)
    opening: Turn = {"role": "system", "content": rng.choice(OPENINGS)}
    messages = [opening] + [as_message(turn, thinking=thinking) for turn in turns]
    return Transcript(messages, tools, thinking, kinds)


def _draw_kinds(rng: Random) -> tuple[str, ...]:
    first = draw_kind(rng)
    if not chance(rng, 0.3):
        return (first,)
    second = draw_kind(rng)
    too_long = first in _LONG_KINDS and second in _LONG_KINDS
    return (first,) if too_long else (first, second)


def _offered_tools(rng: Random, turns: Sequence[Turn]) -> list[dict[str, Any]] | None:
    """The tools that are called and some that are not, shuffled."""
    calls = [call["function"]["name"] for turn in turns for call in turn.get("tool_calls", ())]
    names = list(dict.fromkeys(calls))
    if names or chance(rng, 0.5):
        others = [name for name in TOOLS if name not in names]
        names += rng.sample(others, max(0, rng.randint(1, _MOST_TOOLS) - len(names)))
    rng.shuffle(names)
    return [TOOLS[name] for name in names] or None
