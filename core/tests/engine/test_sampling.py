"""Choosing tokens: by seed, position and context alone, by mlx-lm's own rules."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import mlx.core as mx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlx_lm.sample_utils import make_sampler

from draws import SETTINGS, each_setting, ids
from mlxfill import InputError, Sampling
from mlxfill.sampling import SEEDS, Chooser, position_seed

VOCABULARY = 12
LOGITS = mx.array([[2.0, 1.5, 1.4, 1.0, 0.9, 0.5, 0.0, -0.5, -1.0, -1.5, -2.0, -6.0]])


def logprobs(logits: mx.array = LOGITS) -> mx.array:
    return logits - mx.logsumexp(logits, axis=-1, keepdims=True)


# --- keys --------------------------------------------------------------------------


@given(
    seed=st.integers(0, SEEDS - 1),
    start=st.integers(0, 1 << 20),
    cuts=st.lists(st.integers(1, 6), min_size=1, max_size=6),
    settings=st.sampled_from(SETTINGS),
)
def test_a_draw_does_not_depend_on_how_positions_are_grouped(
    seed: int, start: int, cuts: list[int], settings: dict[str, Any]
) -> None:
    chooser = Chooser(Sampling(seed=seed, **settings))
    count = sum(cuts)
    rows = mx.concatenate([mx.roll(logprobs(), i, 1) for i in range(count)])
    whole = ids(chooser.choose(rows, range(start, start + count)))
    parts: list[int] = []
    for size in cuts:
        at = len(parts)
        part = chooser.choose(rows[at : at + size], range(start + at, start + at + size))
        parts += ids(part)
    assert parts == whole


@given(seed=st.integers(0, SEEDS - 1), position=st.integers(0, 1 << 40))
def test_neighbouring_positions_and_seeds_have_keys_of_their_own(seed: int, position: int) -> None:
    keys = {position_seed(seed, position + i) for i in range(64)}
    keys |= {position_seed((seed + i) % SEEDS, position) for i in range(64)}
    assert len(keys) == 127
    assert all(0 <= key < 1 << 64 for key in keys)


@each_setting
def test_positions_draw_independently(settings: dict[str, Any]) -> None:
    """Were one key used for all positions, all rows of equal logits would give one token."""
    chooser = Chooser(Sampling(seed=4, **settings))
    drawn = ids(chooser.choose(mx.repeat(logprobs(), 64, axis=0), range(64)))
    assert len(set(drawn)) > 2
    assert drawn == ids(chooser.choose(mx.repeat(logprobs(), 64, axis=0), range(64)))


def test_greedy_takes_the_most_likely_at_any_seed() -> None:
    for seed in (0, 1, SEEDS - 1):
        assert ids(Chooser(Sampling(seed=seed)).choose(logprobs(), [3])) == [0]


# --- the law -------------------------------------------------------------------------


def exact(settings: dict[str, Any]) -> list[float]:
    """The distribution that the filters leave, computed by hand in mlx-lm's order."""
    row = [float(x) for x in ids(logprobs()[0])]
    if 0 < settings.get("top_p", 0) < 1:
        order = sorted(range(VOCABULARY), key=lambda i: -row[i])
        above, kept = 0.0, set()
        for i in order:
            if above < settings["top_p"]:
                kept.add(i)
            above += math.exp(row[i])
        row = [x if i in kept else -math.inf for i, x in enumerate(row)]
    if settings.get("min_p"):
        floor = max(row) + math.log(settings["min_p"])
        row = [x if x >= floor else -math.inf for x in row]
    if settings.get("top_k"):
        floor = sorted(row)[-settings["top_k"]]
        row = [x if x >= floor else -math.inf for x in row]
    weights = [math.exp(x / settings["temperature"]) for x in row]
    return [w / sum(weights) for w in weights]


@pytest.mark.parametrize("settings", SETTINGS[:5], ids="-".join)
@pytest.mark.parametrize("seed", [0, 20240229])
def test_draws_follow_the_law(settings: dict[str, Any], seed: int) -> None:
    """Chi-square over 6,000 positions; 0.001 quantile for at most 11 degrees of freedom."""
    count = 6000
    chooser = Chooser(Sampling(seed=seed, **settings))
    seen = Counter(ids(chooser.choose(mx.repeat(logprobs(), count, axis=0), range(count))))
    expected = exact(settings)
    assert all(expected[token] > 0 for token in seen)
    used = [(seen[i], p * count) for i, p in enumerate(expected) if p * count > 1]
    assert sum((n - e) ** 2 / e for n, e in used) < 31.3


def test_pairs_of_neighbours_are_independent() -> None:
    """Chi-square of the table of consecutive draws, 4 even tokens; 0.001 quantile for 9 degrees."""
    count = 8000
    chooser = Chooser(Sampling(seed=11, temperature=1.0))
    drawn = ids(chooser.choose(mx.zeros((count, 4)), range(count)))
    table = Counter(zip(drawn[::2], drawn[1::2], strict=True))
    even = count / 2 / 16
    assert sum((table[a, b] - even) ** 2 / even for a in range(4) for b in range(4)) < 37.7


def of_mlx_lm(settings: dict[str, Any]) -> Any:
    """mlx-lm's sampler with the same settings."""
    renamed: dict[str, Any] = {
        ("temp" if name == "temperature" else name): list(value)
        if isinstance(value, tuple)
        else value
        for name, value in settings.items()
    }
    return make_sampler(**renamed)


@each_setting
def test_a_sampler_of_mlx_lm_draws_with_the_key_of_the_position(settings: dict[str, Any]) -> None:
    sampler = of_mlx_lm(settings)
    foreign = Chooser(Sampling(seed=5), sampler)
    own = Chooser(Sampling(seed=5, **settings))
    for position in range(40):
        mx.random.seed(position_seed(5, position))
        expected = ids(sampler(logprobs()))
        assert ids(foreign.choose(logprobs(), [position])) == expected
        if "xtc_probability" in settings:  # the filter itself draws: rows are drawn one by one
            assert ids(own.choose(logprobs(), [position])) == expected


@pytest.mark.parametrize("settings", SETTINGS[:5], ids="-".join)
def test_scores_show_the_choice_and_its_margin(settings: dict[str, Any]) -> None:
    chooser = Chooser(Sampling(seed=6, **settings))
    rows = mx.repeat(logprobs(), 50, axis=0)
    scores = chooser.scores(rows, range(50))
    assert ids(mx.argmax(scores, axis=-1)) == ids(chooser.choose(rows, range(50)))


def test_a_foreign_sampler_has_no_margins() -> None:
    with pytest.raises(InputError, match="margins"):
        Chooser(Sampling(seed=1), make_sampler(temp=0.5)).scores(logprobs(), [0])


def test_raw_logits_are_drawn_like_log_probabilities() -> None:
    chooser = Chooser(Sampling(seed=3, temperature=0.8, top_p=0.9))
    rows = mx.repeat(LOGITS, 30, axis=0)
    same = chooser.choose(rows - mx.logsumexp(rows, axis=-1, keepdims=True), range(30))
    assert ids(chooser.draw(rows, range(30))) == ids(same)
