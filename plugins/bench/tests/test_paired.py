"""The statistics against known values and their own definitions."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxfill_bench.paired import (
    overall_ratio,
    ratio_interval,
    session_ratio,
    upper_bound,
    worse_by_chance,
)


@pytest.mark.parametrize(
    ("worse", "better", "p"),
    [(0, 0, 1.0), (0, 4, 1.0), (4, 0, 1 / 16), (5, 0, 1 / 32), (3, 1, 5 / 16), (2, 2, 11 / 16)],
)
def test_p_of_mcnemars_test(worse: int, better: int, p: float) -> None:
    assert worse_by_chance(worse, better) == pytest.approx(p)


def test_p_of_many_turns_is_a_number() -> None:
    assert worse_by_chance(3000, 2000) < 1e-40
    assert worse_by_chance(2500, 2500) == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("of", [1, 7, 60, 5000])
def test_bound_when_nothing_was_hit(of: int) -> None:
    assert upper_bound(0, of) == pytest.approx(1 - 0.05 ** (1 / of), abs=1e-6)


def test_bound_from_the_tables() -> None:
    assert upper_bound(1, 20) == pytest.approx(0.2161, abs=1e-4)
    assert upper_bound(5, 10, confidence=0.975) == pytest.approx(0.8129, abs=1e-4)


def test_nothing_tried_or_all_hit_excludes_nothing() -> None:
    assert upper_bound(0, 0) == 1.0
    assert upper_bound(3, 3) == 1.0


@given(of=st.integers(1, 400), data=st.data())
def test_at_the_bound_so_few_hits_have_a_chance_of_five_percent(
    of: int, data: st.DataObject
) -> None:
    hits = data.draw(st.integers(0, of - 1))
    bound = upper_bound(hits, of)
    chance = sum(math.comb(of, k) * bound**k * (1 - bound) ** (of - k) for k in range(hits + 1))
    assert chance == pytest.approx(0.05, abs=1e-4)


def test_a_session_is_its_total_and_one_disturbed_round_does_not_count() -> None:
    long, short = [(8.0, 4.0)] * 3, [(1.0, 1.0)] * 3
    assert session_ratio([long, short]) == pytest.approx(9 / 5)
    disturbed = [(8.0, 4.0), (8.0, 400.0), (8.0, 4.0)], [(70.0, 1.0), (1.0, 1.0), (1.0, 1.0)]
    assert session_ratio(disturbed) == pytest.approx(9 / 5)


def test_overall_is_the_median_of_the_sessions() -> None:
    sessions = [[[(plain, 1.0)]] for plain in (1.0, 3.0, 100.0)]
    assert overall_ratio(sessions) == 3.0


def noisy(ratio: float, sessions: int, seed: int = 0) -> list[list[list[tuple[float, float]]]]:
    """Sessions of 3 turns and 2 rounds, each time off by up to a tenth."""
    rng = Random(seed)

    def pair() -> tuple[float, float]:
        return ratio * rng.uniform(0.9, 1.1), rng.uniform(0.9, 1.1)

    return [[[pair() for _ in range(2)] for _ in range(3)] for _ in range(sessions)]


@settings(deadline=None, max_examples=20)
@given(ratio=st.floats(0.2, 5.0), seed=st.integers())
def test_the_interval_holds_the_ratio_that_was_put_in(ratio: float, seed: int) -> None:
    low, high = ratio_interval(noisy(ratio, 5, seed), seed=0)
    assert 0.85 * ratio < low <= high < 1.15 * ratio
    assert low <= overall_ratio(noisy(ratio, 5, seed)) <= high


def test_the_interval_repeats_itself_and_narrows_with_more_sessions() -> None:
    few, many = ratio_interval(noisy(1.0, 4), seed=1), ratio_interval(noisy(1.0, 40), seed=1)
    assert ratio_interval(noisy(1.0, 4), seed=1) == few
    assert many[1] - many[0] < few[1] - few[0]
