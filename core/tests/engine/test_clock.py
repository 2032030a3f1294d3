"""No request becomes slower than the allowance, whatever the machine, and good guesses pay.

Time is made up (``machines``): the real loop and policy read a clock that the tests turn.
``benchmarks/clock.py`` prints the same for every pair.
"""

from __future__ import annotations

from itertools import product
from statistics import mean

import pytest
from attrs import evolve

from machines import ARMS, KINDS, Arm, Bench, Kind, best_depth, ratios

TOKENS, SHORT = 200, 40
WORST = 0.98
STEPS, SHARE = 2.0, 0.01
"""What a request may lose: so many steps, and this share of the plain time."""
NOT_PAYING = [arm for arm in ARMS.values() if arm.right <= 0.3 or (arm.draft or 0) > 0.5]
SURE = [arm for arm in ARMS.values() if arm.right == 1.0 and not arm.once]


def named(pair: tuple[Kind, Arm]) -> str:
    return f"{pair[0].name}: {pair[1].name}"


PAIRS = list(product(KINDS.values(), ARMS.values()))


@pytest.mark.parametrize("pair", [(k, a) for k, a in PAIRS if a in NOT_PAYING], ids=named)
def test_a_long_reply_loses_at_most_two_in_a_hundred(pair: tuple[Kind, Arm]) -> None:
    for seed in range(2):
        assert min(ratios(*pair, seed, [TOKENS] * 4)) >= WORST, seed


@pytest.mark.parametrize("pair", [(k, a) for k, a in PAIRS if a not in NOT_PAYING], ids=named)
def test_a_long_reply_gives_back_no_more_than_was_won_before(pair: tuple[Kind, Arm]) -> None:
    for seed in range(2):
        won = 0.0
        for ratio in ratios(*pair, seed, [TOKENS] * 4):
            won += 1.0 / WORST - 1.0 / ratio  # in replies of a plain engine
            assert won >= 0.0, seed


@pytest.mark.parametrize("pair", [(k, a) for k, a in PAIRS if a in NOT_PAYING], ids=named)
def test_a_short_reply_loses_at_most_a_step_or_two(pair: tuple[Kind, Arm]) -> None:
    for ratio in ratios(*pair, 0, [SHORT] * 6):
        assert SHORT / ratio - SHORT <= STEPS + SHARE * SHORT


@pytest.mark.parametrize("arm", SURE, ids=lambda arm: arm.name)
@pytest.mark.parametrize(
    "name", ["fast quiet", "like a GPU", "growing slower", "busy, then quiet", "noisy"]
)
def test_who_is_right_gains_most_of_what_the_best_fixed_depth_does(name: str, arm: Arm) -> None:
    kind = KINDS[name]
    best = best_depth(kind, arm, 0, TOKENS)
    assert best > 1.5
    assert mean(ratios(kind, arm, seed, [TOKENS] * 5)[-1] for seed in range(3)) >= 0.9 * best


def test_a_slow_host_does_not_keep_out_a_source_that_plain_steps_found_right() -> None:
    """A wrong window loses more than a request may, there; but nothing speaks for a wrong one."""
    kind, arm = KINDS["bound by the host"], ARMS["source, always right"]
    best = best_depth(kind, arm, 0, TOKENS)
    assert mean(ratios(kind, arm, seed, [TOKENS] * 5)[-1] for seed in range(3)) >= 0.85 * best


@pytest.mark.parametrize("name", ["fast quiet", "like a GPU", "growing quicker"])
def test_so_does_a_head_that_is_right_most_of_the_time(name: str) -> None:
    kind, arm = KINDS[name], ARMS["head, 80 % right"]
    best = best_depth(kind, arm, 0, TOKENS)
    assert mean(ratios(kind, arm, seed, [TOKENS] * 5)[-1] for seed in range(3)) >= 0.85 * best


@pytest.mark.parametrize(("right", "least", "most"), [(1.0, 3, 20), (0.0, 1, 4)])
def test_what_rounds_cost_is_found_out_whatever_the_curve_says(
    right: float, least: int, most: int
) -> None:
    """A curve that was measured on a busy machine, read from disk, must not keep a drafter out."""
    kind = evolve(KINDS["busy, then quiet"], believed={1: 1.0, 2: 9.0})
    arm = Arm(name="head", right=right, draft=0.05, depth=4)
    for seed in range(10):
        bench = Bench(kind, arm, seed)
        bench.request(60)
        assert least <= bench.rounds <= most


def test_where_guesses_rest_the_loop_decodes_as_without_them() -> None:
    """A drafter at rest leaves no mark on the clock: the reply takes what a plain one does."""
    kind, arm = KINDS["n ids cost n"], ARMS["dear drafter, never right"]
    assert ratios(kind, arm, 0, [TOKENS])[0] == pytest.approx(1.0, abs=0.001)
