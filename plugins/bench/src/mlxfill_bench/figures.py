"""What the answers of one arm come to, and its times against those of plain decoding."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Literal

from attrs import frozen

from mlxfill_bench.paired import overall_ratio, ratio_interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlxfill_bench.paired import Turns
    from mlxfill_bench.playback import Answer, Answered

FEWEST_PAIRS = 6
"""Below, even pairs that all point one way may do so by chance (two-sided, 2 / 2**5 > 0.05)."""


@frozen
class Figures:
    """Over all answers of one arm.

    ``tokens_per_second``: of wall time; ``injected``: share of tokens that were asserted unread;
    ``acceptance``: share of verified drafts that held, None: none were; ``offers``: proposals of
    sources, ``left_out``: those that the cost gate made nothing of; ``faults`` and ``notes``: each
    once.
    """

    tokens_per_second: float
    tokens_per_forward: float
    injected: float
    acceptance: float | None
    offers: int
    left_out: int
    faults: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, replayed: Sequence[Answered], arm: str) -> Figures:
        """Add up."""
        answers: list[Answer] = [answer for turn in replayed for answer in turn.answers[arm]]
        generated = sum(len(a.tokens) for a in answers)
        drafted = sum(a.drafted for a in answers)
        return cls(
            generated / max(sum(a.seconds for a in answers), 1e-9),
            generated / max(sum(a.forwards for a in answers), 1),
            sum(a.injected for a in answers) / max(generated, 1),
            sum(a.accepted for a in answers) / drafted if drafted else None,
            sum(a.offers for a in answers),
            sum(a.left_out for a in answers),
            tuple(dict.fromkeys(fault for answer in answers for fault in answer.faults)),
            tuple(dict.fromkeys(note for answer in answers for note in answer.notes)),
        )

    @property
    def gate_line(self) -> str | None:
        """Why little came of offers, if the gate left some out."""
        if not self.left_out:
            return None
        return (
            f"the gate left out {self.left_out} of {self.offers} offers, which promised less than"
            " a window costs here; mlxfill doctor says more"
        )


@frozen
class Speed:
    """How many times faster than plain decoding, in wall time, with its 95 % interval."""

    ratio: float
    low: float
    high: float
    verdict: Literal["faster", "slower", "undecided"]

    @classmethod
    def of(cls, sessions: Sequence[Turns], seed: int) -> Speed:
        """The median of the sessions; of one its total time."""
        low, high = ratio_interval(sessions, seed)
        pairs = sum(len(rounds) for turns in sessions for rounds in turns)
        verdict: Literal["faster", "slower", "undecided"] = "undecided"
        if pairs >= FEWEST_PAIRS:
            verdict = "faster" if low > 1 else "slower" if high < 1 else "undecided"
        return cls(overall_ratio(sessions), low, high, verdict)


def speeds_of_sessions(
    replayed: Sequence[Answered], plain: str, arm: str, seed: int
) -> tuple[Speed, dict[str, Speed]]:
    """Over all, the median of the sessions, and of each session."""
    times: dict[str, Turns] = {
        session: [_pairs(turn, plain, arm) for turn in turns]
        for session, turns in groupby(replayed, key=lambda turn: turn.session)
    }
    alone = {session: Speed.of([turns], seed) for session, turns in times.items()}
    return Speed.of(list(times.values()), seed), alone


def speeds_of_prompts(
    answered: Sequence[Answered], plain: str, arm: str, seed: int
) -> tuple[Speed, dict[str, Speed]]:
    """Over all, by total time, and of each prompt."""
    times = {turn.name: _pairs(turn, plain, arm) for turn in answered}
    alone = {prompt: Speed.of([[pairs]], seed) for prompt, pairs in times.items()}
    return Speed.of([list(times.values())], seed), alone


def _pairs(turn: Answered, plain: str, arm: str) -> list[tuple[float, float]]:
    answers = zip(turn.answers[plain], turn.answers[arm], strict=True)
    return [(p.seconds, a.seconds) for p, a in answers]


def identical(turn: Answered, plain: str, arm: str) -> bool:
    """Whether the arm gave the token ids of plain decoding, in every round."""
    return {a.tokens for a in turn.answers[arm]} == {a.tokens for a in turn.answers[plain]}
