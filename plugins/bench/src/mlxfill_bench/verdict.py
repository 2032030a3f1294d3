"""What the answers say about each arm: does it do harm, and is it faster?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from attrs import frozen

from mlxfill_bench.figures import Figures, Speed, identical, speeds_of_sessions
from mlxfill_bench.paired import CONFIDENCE, upper_bound, worse_by_chance

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlxfill_bench.agreement import Deed
    from mlxfill_bench.playback import Replayed

MARGIN = 0.05


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
class Verdict:
    """One arm against plain decoding."""

    arm: str
    harm: Harm
    speed: Speed
    by_session: dict[str, Speed]
    figures: Figures
    changes: tuple[Change, ...]


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
    speed, by_session = speeds_of_sessions(replayed, plain, arm, seed)
    changes = [
        _change(turn, plain, arm) for turn in replayed if turn.right(plain) and not turn.right(arm)
    ]
    return Verdict(
        arm,
        _harm(replayed, plain, arm, margin),
        speed,
        by_session,
        Figures.of(replayed, arm),
        tuple(changes),
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
        sum(identical(turn, plain, arm) for turn in replayed),
        verdict,
    )


def _change(turn: Replayed, plain: str, arm: str) -> Change:
    wrong = next(a.deed for a in turn.answers[arm] if not a.deed.same(turn.recorded))
    told: tuple[Deed, ...] = (turn.recorded, turn.answers[plain][0].deed, wrong)
    return Change(turn.session, turn.turn, *map(str, told))
