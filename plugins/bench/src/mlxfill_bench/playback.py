"""Replays sessions turn by turn: every arm answers the recorded history, the arms in turn."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from attrs import frozen

from mlxfill import CacheMismatchError, InputError, MlxfillError
from mlxfill_bench.agreement import Deed, generated_deed, recorded_deed
from mlxfill_bench.arms import own_plugins
from mlxfill_bench.sessions import name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from mlxfill import Engine, PromptCache, Result
    from mlxfill_bench.sessions import Asked, Session, Turn

GREEDY = {"temperature": 0.0}


@frozen
class Answer:
    """One reply of one arm.

    ``seconds``: wall time from the request to the last token.  ``offers``: proposals of sources,
    ``left_out``: those that the cost gate made nothing of.  ``faults``: of the arm's own plugins;
    ``notes``: what else the engine said of the request.
    """

    seconds: float
    deed: Deed
    tokens: tuple[int, ...]
    forwards: int
    injected: int
    drafted: int
    accepted: int
    offers: int
    left_out: int
    faults: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@frozen
class Answered:
    """One turn, and the answers of each arm, one a round."""

    session: str
    turn: int
    answers: Mapping[str, Sequence[Answer]]

    @property
    def name(self) -> str:
        """In reports."""
        return name_of(self.session, self.turn)


@frozen
class Replayed(Answered):
    """One recorded turn."""

    recorded: Deed

    def right(self, arm: str) -> bool:
        """The arm did what was recorded, in every round."""
        return all(answer.deed.same(self.recorded) for answer in self.answers[arm])


def replay(
    sessions: Sequence[Session],
    arms: Mapping[str, Engine],
    **options: Any,  # noqa: ANN401 - those of `ask`
) -> list[Replayed]:
    """Let every arm answer every turn of recorded sessions.

    The prompt of a turn is the recorded history, whatever an arm said before: arms stay comparable.

    :param options: keywords of ``ask``.
    :raises InputError, TemplateError: a turn that cannot be asked; names session and turn.
    """
    recorded = [turn.recorded or {} for session in sessions for turn in session.turns()]
    return [
        Replayed(turn.session, turn.turn, turn.answers, recorded_deed(message))
        for turn, message in zip(ask(sessions, arms, **options), recorded, strict=True)
    ]


def ask(  # noqa: PLR0913 - all that can be chosen
    sessions: Sequence[Asked],
    arms: Mapping[str, Engine],
    *,
    rounds: int = 3,
    max_tokens: int = 512,
    sampling: Mapping[str, Any] = GREEDY,
    cold: bool = False,
    clock: Callable[[], float] = time.perf_counter,
    on_turn: Callable[[], None] = lambda: None,
) -> list[Answered]:
    """Let every arm answer every turn, ``rounds`` times.

    Plain decoding reads the prompt once, untimed, and each arm is handed that cache, as a server
    that keeps the caches of a session would; with ``cold`` each arm reads all of it, timed.
    Requests name no session: a plugin must not remember the same turn of an earlier round.

    :param arms: engines by name, the first of them plain; it reads the prompts.
    :param sampling: keywords of ``Sampling``; with a temperature also a seed.
    :param clock: seconds; ``on_turn`` is called when all arms have answered a turn.
    :raises InputError, TemplateError: a turn that cannot be asked; names session and turn.
    """
    if rounds < 1:
        raise InputError(f"rounds must be a whole number of at least 1, not {rounds}")
    asking = {"max_tokens": max_tokens, **sampling}
    answers: dict[tuple[str, int], dict[str, list[Answer]]] = {
        (session.id, turn.number): {name: [] for name in arms}
        for session in sessions
        for turn in session.turns()
    }
    for session in sessions:  # all of them, before the first one takes its time
        player = Player(session, arms, asking, clock, cold=cold)
        for turn in session.turns():
            player.check(turn)
    _warm_up(sessions[:1], arms, asking)
    for number in range(rounds):
        for session in sessions:
            player = Player(session, arms, asking, clock, cold=cold)
            for turn in session.turns():
                for name, answer in player.answers(turn, first=number + turn.number):
                    answers[session.id, turn.number][name].append(answer)
                on_turn()
    return [Answered(*key, given) for key, given in answers.items()]


def _warm_up(
    sessions: Sequence[Asked], arms: Mapping[str, Engine], asking: Mapping[str, Any]
) -> None:
    """One untimed reply of each arm: the first one of an engine also loads kernels."""
    for session in sessions:
        player = Player(session, arms, asking, time.perf_counter, cold=True)
        player.answers(session.turns()[0], first=0)


class Player:
    """Asks one session, in one round."""

    def __init__(
        self,
        session: Asked,
        arms: Mapping[str, Engine],
        asking: Mapping[str, Any],
        clock: Callable[[], float],
        *,
        cold: bool,
    ) -> None:
        self._session, self._arms, self._clock, self._cold = session, arms, clock, cold
        self._asking = {
            **asking,
            "tools": session.tools,
            "template_options": session.template_options,
        }
        self._read: PromptCache | None = None

    def check(self, turn: Turn) -> None:
        """Raise what asking the turn would raise; computes nothing."""
        with self._named(turn):
            next(iter(self._arms.values())).check(turn.history, **self._asking)

    def answers(self, turn: Turn, first: int) -> list[tuple[str, Answer]]:
        """The arms' answers; arm number ``first`` (modulo their number) begins."""
        names = list(self._arms)
        start = first % len(names)
        with self._named(turn):
            self._read = None if self._cold else self._read_prompt(turn)
            return [(n, self._answer(n, turn)) for n in names[start:] + names[:start]]

    def results(self, turn: Turn) -> Iterator[tuple[str, Result]]:
        """The arms' replies, one when it is asked for, not timed."""
        with self._named(turn):
            self._read = None if self._cold else self._read_prompt(turn)
            for name in self._arms:
                yield name, self._generate(name, turn)

    @contextmanager
    def _named(self, turn: Turn) -> Iterator[None]:
        """Say in an error which turn it is about."""
        try:
            yield
        except MlxfillError as error:
            where = f"prompt {self._session.id}"
            if turn.recorded is not None:
                where = f"session {self._session.id}, turn {turn.number}"
            raise type(error)(f"{where}: {error}") from error

    def _read_prompt(self, turn: Turn) -> PromptCache:
        """The caches of the prompt but its last token, grown from those of the turn before."""
        plain, kept = next(iter(self._arms.values())), list[Any]()
        asking = {**self._asking, "max_tokens": 1, "on_prefill_done": kept.append}
        try:
            plain.generate(turn.history, cache=self._read, **asking)
        except CacheMismatchError:  # the template shows earlier turns in another way later
            plain.generate(turn.history, **asking)
        cache: PromptCache = kept[0]
        return cache

    def _answer(self, name: str, turn: Turn) -> Answer:
        _finish_what_is_under_way()
        started = self._clock()
        result = self._generate(name, turn)
        seconds = self._clock() - started
        return _answer_of(result, name, self._arms[name], seconds)

    def _generate(self, name: str, turn: Turn) -> Result:
        return self._arms[name].generate(turn.history, cache=self._read, **self._asking)


def _finish_what_is_under_way() -> None:
    """A reply may end with a step still in the queue: the next arm shall not wait for it."""
    import mlx.core as mx
    from mlx_lm.generate import generation_stream

    mx.synchronize(generation_stream)


def _answer_of(result: Result, arm: str, engine: Engine, seconds: float) -> Answer:
    stats, own = result.stats, own_plugins(engine, arm)
    faults = [fault for fault in result.faults if fault.plugin in own and not fault.notice]
    notes = [fault for fault in result.faults if fault not in faults]
    return Answer(
        seconds,
        generated_deed(result, engine.tokenizer),
        tuple(result.tokens),
        stats.target_forwards,
        stats.fill.get("injected", 0),
        stats.spec.get("drafted", 0),
        stats.spec.get("accepted", 0),
        stats.spec.get("offers", 0),
        stats.spec.get("left_out", 0),
        tuple(fault.line for fault in faults),
        tuple(note.line for note in notes),
    )
