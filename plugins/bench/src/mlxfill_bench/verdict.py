"""What the answers say about each arm: does it do harm, and is it faster?"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Literal

from attrs import frozen

from mlxfill_bench.paired import (
    CONFIDENCE,
    overall_ratio,
    ratio_interval,
    upper_bound,
    worse_by_chance,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlxfill_bench.paired import Turns
    from mlxfill_bench.playback import Answer, Replayed

MARGIN = 0.05
FEWEST_PAIRS = 6
"""Below, even pairs that all point one way may do so by chance (two-sided, 2 / 2**5 > 0.05)."""


@frozen
class Change:
    """A turn that plain decoding got right and the arm did not."""

    session: str
    turn: int
    recorded: str
    plain: str
    arm: str


@frozen
class Harm:
    """Agreement with what was recorded, turn by turn, against plain decoding.

    ``right``, ``plain_right``: turns in which the recorded thing was done.  ``worse``: turns that
    only plain got right, ``better``: that only the arm got right.  ``p``: one-sided, of McNemar's
    exact test.  ``at_most``: upper 95 % bound of the share of plain's right turns that the arm
    makes worse.  ``identical``: turns with the same token ids as plain.

    ``verdict``: ``faulty`` when a plugin of the arm was set aside in a request (what was measured
    then is not the arm); ``worse`` when the test says so; ``harmless`` when the bound is
    within the margin; else ``undecided``: more turns are needed.
    """

    turns: int
    plain_right: int
    right: int
    worse: int
    better: int
    p: float
    at_most: float
    identical: int
    verdict: Literal["faulty", "worse", "harmless", "undecided"]


@frozen
class Speed:
    """How many times faster than plain decoding, in wall time, with its 95 % interval."""

    ratio: float
    low: float
    high: float
    verdict: Literal["faster", "slower", "undecided"]

    @classmethod
    def of(cls, sessions: Sequence[Turns], seed: int) -> Speed:
        """The median of the sessions."""
        low, high = ratio_interval(sessions, seed)
        pairs = sum(len(rounds) for turns in sessions for rounds in turns)
        verdict: Literal["faster", "slower", "undecided"] = "undecided"
        if pairs >= FEWEST_PAIRS:
            verdict = "faster" if low > 1 else "slower" if high < 1 else "undecided"
        return cls(overall_ratio(sessions), low, high, verdict)


@frozen
class Verdict:
    """One arm against plain decoding.

    ``tokens_per_forward`` and ``injected`` (share of tokens that were asserted) are over all of the
    arm's replies, so is ``acceptance`` (share of verified drafts; None: none were).
    """

    arm: str
    harm: Harm
    speed: Speed
    by_session: dict[str, Speed]
    tokens_per_forward: float
    injected: float
    acceptance: float | None
    changes: tuple[Change, ...]
    faults: tuple[str, ...]


def verdicts(
    replayed: Sequence[Replayed], *, margin: float = MARGIN, seed: int = 0
) -> list[Verdict]:
    """A verdict on every arm but the first, which is plain decoding.

    :param margin: share of plain's right turns that may be made worse for an arm to be harmless.
    :param seed: of the bootstrap.
    """
    plain, *others = replayed[0].answers
    return [_verdict(replayed, plain, arm, margin, seed) for arm in others]


def _verdict(
    replayed: Sequence[Replayed], plain: str, arm: str, margin: float, seed: int
) -> Verdict:
    answers = [answer for turn in replayed for answer in turn.answers[arm]]
    times = _times(replayed, plain, arm)
    drafted = sum(a.drafted for a in answers)
    generated = sum(len(a.tokens) for a in answers)
    return Verdict(
        arm,
        _harm(replayed, plain, arm, margin),
        Speed.of(list(times.values()), seed),
        {session: Speed.of([turns], seed) for session, turns in times.items()},
        generated / max(sum(a.forwards for a in answers), 1),
        sum(a.injected for a in answers) / max(generated, 1),
        sum(a.accepted for a in answers) / drafted if drafted else None,
        tuple(
            _change(turn, plain, arm)
            for turn in replayed
            if turn.right(plain) and not turn.right(arm)
        ),
        _faults(answers),
    )


def _harm(replayed: Sequence[Replayed], plain: str, arm: str, margin: float) -> Harm:
    pairs = [(turn.right(plain), turn.right(arm)) for turn in replayed]
    worse, better = pairs.count((True, False)), pairs.count((False, True))
    plain_right = sum(right for right, _ in pairs)
    p, at_most = worse_by_chance(worse, better), upper_bound(worse, plain_right)
    verdict: Literal["faulty", "worse", "harmless", "undecided"] = "undecided"
    if any(answer.faults for turn in replayed for answer in turn.answers[arm]):
        verdict = "faulty"
    elif p < 1 - CONFIDENCE:
        verdict = "worse"
    elif at_most <= margin:
        verdict = "harmless"
    return Harm(
        len(pairs),
        plain_right,
        sum(right for _, right in pairs),
        worse,
        better,
        p,
        at_most,
        sum(_ids(turn, plain) == _ids(turn, arm) for turn in replayed),
        verdict,
    )


def _ids(turn: Replayed, arm: str) -> set[tuple[int, ...]]:
    return {answer.tokens for answer in turn.answers[arm]}


def _change(turn: Replayed, plain: str, arm: str) -> Change:
    wrong = next(a.deed for a in turn.answers[arm] if not a.deed.same(turn.recorded))
    told = (turn.recorded, turn.answers[plain][0].deed, wrong)
    return Change(turn.session, turn.turn, *map(str, told))


def _times(replayed: Sequence[Replayed], plain: str, arm: str) -> dict[str, Turns]:
    """For each session its turns, each a list of (plain, arm) seconds in every round."""
    return {
        session: [
            [
                (p.seconds, a.seconds)
                for p, a in zip(turn.answers[plain], turn.answers[arm], strict=True)
            ]
            for turn in turns
        ]
        for session, turns in groupby(replayed, key=lambda turn: turn.session)
    }


def _faults(answers: Sequence[Answer]) -> tuple[str, ...]:
    """Each fault once, in the order of their first occurrence."""
    return tuple(dict.fromkeys(fault for answer in answers for fault in answer.faults))
