"""What the answers to the user's own prompts say about each arm: is it ever slower?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from attrs import frozen

from mlxfill_bench.figures import FEWEST_PAIRS, Figures, Speed, identical, speeds_of_prompts
from mlxfill_bench.observed import Position, by_position, expected_speed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlxfill_bench.observed import Observed
    from mlxfill_bench.playback import Answered

SLACK = 0.03
"""An arm may be slower by this share and still count as harmless."""
Word = Literal["helps", "harmless", "harms", "undecided", "idle", "faulty"]


@frozen
class Effect:
    """One arm against plain decoding.

    ``verdict``: ``faulty`` when a plugin of the arm was set aside (what was measured then is not
    the arm); ``idle`` when it proposed nothing; ``helps`` when the whole interval of the speed lies
    above 1; ``harmless`` when it lies above 1 less the slack: the arm is never slower, as far as
    can be told; ``harms`` when it lies below 1; else ``undecided``: more rounds or prompts are
    needed.  Where forwards and cost curve say the opposite of the clock, nothing is proven:
    ``helps`` and ``harms`` need both.
    ``expected``: the speed by forwards and cost curve, with which no other program interferes;
    None: not watched.
    ``identical``: prompts with the token ids of plain decoding in all rounds.
    """

    arm: str
    verdict: Word
    speed: Speed
    expected: float | None
    by_prompt: dict[str, Speed]
    prompts: int
    identical: int
    differing: tuple[str, ...]
    figures: Figures
    by_position: dict[str, tuple[Position, ...]]

    @property
    def lossless(self) -> bool:
        """The same ids, or other ones only where tokens were asserted unread."""
        return self.identical == self.prompts or self.figures.injected > 0

    @property
    def offered(self) -> bool:
        """Whether the arm proposed anything, also where the gate left all of it out."""
        return _offered(self.figures)


def effects(
    answered: Sequence[Answered],
    observed: Sequence[Observed],
    *,
    slack: float = SLACK,
    seed: int = 0,
) -> list[Effect]:
    """The effect of every arm but the first, which is plain decoding.

    :param slack: how much slower, as a share of the speed, is not worth mentioning.
    :param seed: of the bootstrap.
    """
    plain, *others = answered[0].answers
    return [_effect(answered, observed, plain, arm, slack, seed) for arm in others]


def _effect(  # noqa: PLR0913, PLR0917 - of `effects`, and two arms
    answered: Sequence[Answered],
    observed: Sequence[Observed],
    plain: str,
    arm: str,
    slack: float,
    seed: int,
) -> Effect:
    speed, by_prompt = speeds_of_prompts(answered, plain, arm, seed)
    figures = Figures.of(answered, arm)
    expected = expected_speed(observed, plain, arm)
    differing = tuple(turn.name for turn in answered if not identical(turn, plain, arm))
    pairs = sum(len(turn.answers[arm]) for turn in answered)
    return Effect(
        arm,
        _verdict(figures, speed, expected, pairs, slack),
        speed,
        expected,
        by_prompt,
        len(answered),
        len(answered) - len(differing),
        differing,
        figures,
        by_position(observed, arm),
    )


def _offered(figures: Figures) -> bool:
    return figures.offers > 0 or figures.acceptance is not None or figures.injected > 0


def _verdict(
    figures: Figures, speed: Speed, expected: float | None, pairs: int, slack: float
) -> Word:
    if figures.faults:
        return "faulty"
    return _word(speed, expected, pairs, slack) if _offered(figures) else "idle"


def _word(speed: Speed, expected: float | None, pairs: int, slack: float) -> Word:
    if pairs < FEWEST_PAIRS:
        return "undecided"
    if speed.low > 1 and (expected is None or expected > 1):
        return "helps"
    if speed.low >= 1 - slack:
        return "harmless"
    return "harms" if speed.high < 1 and (expected is None or expected < 1) else "undecided"
