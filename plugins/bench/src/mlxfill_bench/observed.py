"""One more reply of each arm, watched: where its tokens came from and which guesses held.

Watching costs time, so these replies are not timed.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from attrs import frozen

from mlxfill_bench.playback import GREEDY, Player
from mlxfill_bench.sessions import name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mlxfill import Engine, Event, Result
    from mlxfill_bench.sessions import Asked


@frozen
class Token:
    """One token of an answer: its id, the text that it added, and the forward that brought it."""

    id: int
    text: str
    origin: str
    forward: int


@frozen
class Position:
    """Guesses at one place of their spans, counted from 1: how many were judged, and held."""

    position: int
    judged: int
    accepted: int


@frozen
class Observed:
    """The watched answer of one arm to one turn.

    ``judged`` has, for each guessed span that a forward tried, the arm's word for where it came
    from, how many of its ids were compared with the model's own, and how many were the same.
    ``steps``: what its forwards cost by the cost curve, in forwards of one token.
    """

    session: str
    turn: int
    arm: str
    tokens: tuple[Token, ...]
    judged: tuple[tuple[str, int, int], ...]
    steps: float = 0.0

    @property
    def name(self) -> str:
        """In reports."""
        return name_of(self.session, self.turn)


def observe(  # noqa: PLR0913 - as `ask`
    sessions: Sequence[Asked],
    arms: Mapping[str, Engine],
    *,
    max_tokens: int = 512,
    sampling: Mapping[str, Any] = GREEDY,
    cold: bool = False,
    on_turn: Callable[[], None] = lambda: None,
) -> list[Observed]:
    """Watch each arm answer each turn once."""
    seen, asking = list[Observed](), {"max_tokens": max_tokens, **sampling}
    for session in sessions:
        player = Player(session, arms, asking, time.perf_counter, cold=cold)
        for turn in session.turns():
            events: list[Event] = []
            with ExitStack() as watching:
                for engine in arms.values():
                    watching.enter_context(engine.tracing.into(events.append))
                for name, result in player.results(turn):
                    tokens, judged = _tokens(result, arms[name]), _judged(events)
                    steps = _steps(result, events, arms[name])
                    seen.append(Observed(session.id, turn.number, name, tokens, judged, steps))
                    events.clear()
            on_turn()
    return seen


def by_position(observed: Sequence[Observed], arm: str) -> dict[str, tuple[Position, ...]]:
    """For each origin of an arm's guesses: what became of them, place by place."""
    spans = [span for answer in observed if answer.arm == arm for span in answer.judged]
    return {
        origin: tuple(
            Position(
                at,
                sum(o == origin and judged >= at for o, judged, _ in spans),
                sum(o == origin and accepted >= at for o, _, accepted in spans),
            )
            for at in range(1, max(judged for o, judged, _ in spans if o == origin) + 1)
        )
        for origin in sorted({o for o, judged, _ in spans if judged})
    }


def expected_speed(observed: Sequence[Observed], plain: str, arm: str) -> float | None:
    """How many times faster than plain decoding by forwards and cost curve; None: not watched."""
    steps = {name: sum(o.steps for o in observed if o.arm == name) for name in (plain, arm)}
    return steps[plain] / steps[arm] if all(steps.values()) else None


def _judged(events: Sequence[Event]) -> tuple[tuple[str, int, int], ...]:
    proposals = [event.data for event in events if event.kind == "proposal"]
    return tuple((p["origin"], p["judged"], p["accepted"]) for p in proposals if p["judged"])


def _steps(result: Result, events: Sequence[Event], engine: Engine) -> float:
    """What the reply's forwards cost: no other program has a part in it."""
    sizes = [e.data["known"] + e.data["drafted"] for e in events if e.kind == "round"]
    return result.stats.target_forwards - len(sizes) + sum(map(engine.forward_cost, sizes))


def _tokens(result: Result, engine: Engine) -> tuple[Token, ...]:
    stream = engine.tokenizer.detokenizer
    texts = []
    for token in result.tokens:
        stream.add_token(token)
        texts.append(stream.last_segment)
    stream.finalize()
    if texts:
        texts[-1] += stream.last_segment
    ends = list(accumulate(result.stats.rounds))
    forwards = [sum(end <= at for end in ends) + 1 for at in range(len(texts))]
    return tuple(map(Token, result.tokens, texts, result.origins, forwards))
