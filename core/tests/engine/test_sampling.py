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

from mlxfill import InputError, Sampling
from mlxfill.sampling import SEEDS, Chooser, position_seed
from mlxfill.testing import Guest, Script, ScriptedSource, engine_with, shared_model

PROMPT = [7, 9, 11, 30, 7, 9]
VOCABULARY = 12
LOGITS = mx.array([[2.0, 1.5, 1.4, 1.0, 0.9, 0.5, 0.0, -0.5, -1.0, -1.5, -2.0, -6.0]])


def logprobs(logits: mx.array = LOGITS) -> mx.array:
    return logits - mx.logsumexp(logits, axis=-1, keepdims=True)


def ids(array: mx.array) -> list[int]:
    found: Any = array.tolist()
    return list(found)


def generator() -> list[int]:
    """State of mlx's global generator."""
    state: Any = mx.random.state
    return ids(state[0])


SETTINGS: list[dict[str, Any]] = [
    {"temperature": 0.7},
    {"temperature": 1.2, "top_k": 5},
    {"temperature": 0.9, "top_p": 0.8},
    {"temperature": 1.0, "min_p": 0.15},
    {"temperature": 1.1, "top_k": 7, "top_p": 0.9, "min_p": 0.05},
    {"temperature": 1.0, "xtc_probability": 0.5, "xtc_threshold": 0.1},
    {"temperature": 0.8, "xtc_probability": 0.3, "xtc_special_tokens": (1,), "top_p": 0.95},
]
each_setting = pytest.mark.parametrize("settings", SETTINGS, ids="-".join)


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


# --- with an engine ------------------------------------------------------------------


def generate(sampling: dict[str, Any], *guests: Guest, **options: Any) -> Any:
    with engine_with(shared_model("llama"), *guests) as engine:
        return engine.generate(PROMPT, max_tokens=24, eos_token_ids=[], **{**sampling, **options})


def guessing(truth: list[int], accuracy: float) -> Guest:
    def make(request: Any) -> ScriptedSource:
        return ScriptedSource(request=request, script=Script([*PROMPT, *truth], accuracy, 9))

    return Guest(sources=[make])


@each_setting
def test_same_seed_same_tokens_with_and_without_windows(settings: dict[str, Any]) -> None:
    plain = generate({"seed": 8, **settings})
    again = generate({"seed": 8, **settings})
    other = generate({"seed": 9, **settings})
    assert plain.tokens == again.tokens
    assert plain.tokens != other.tokens
    for accuracy in (0.0, 0.7, 1.0):
        guest = guessing(plain.tokens, accuracy)
        result = generate({"seed": 8, **settings}, guest)
        assert result.tokens == plain.tokens
        assert result.faults == []
    assert plain.stats.seed == result.stats.seed == 8


@pytest.mark.parametrize(
    "sampler",
    [
        make_sampler(temp=0.8, top_p=0.9),
        make_sampler(temp=1.0, top_k=10, xtc_probability=0.4, xtc_threshold=0.05),
        make_sampler(temp=0.0),
        lambda row: mx.argmin(row, axis=-1),
    ],
    ids=["top_p", "xtc", "greedy", "own"],
)
def test_a_sampler_of_mlx_lm_is_taken_and_stays_lossless(sampler: Any) -> None:
    plain = generate({"seed": 8}, sampler=sampler)
    for accuracy in (0.0, 0.7, 1.0):
        result = generate({"seed": 8}, guessing(plain.tokens, accuracy), sampler=sampler)
        assert result.tokens == plain.tokens
    assert result.stats.target_forwards < plain.stats.target_forwards


def test_a_sampler_that_counts_its_calls_sees_each_position_once() -> None:
    """Drafts that are refused are never shown to a sampler with a memory."""
    seen: list[int] = []

    def sampler(row: mx.array) -> mx.array:
        (choice,) = ids(mx.argmax(row, axis=-1))
        seen.append(choice)
        return mx.array([choice])

    plain = generate({"seed": 8}, sampler=sampler)
    assert seen == plain.tokens
    for accuracy in (0.0, 0.6):
        seen.clear()
        guest = guessing(plain.tokens, accuracy)
        assert generate({"seed": 8}, guest, sampler=sampler).tokens == plain.tokens
        assert seen == plain.tokens


@pytest.mark.parametrize("settings", [{}, *SETTINGS[-2:]], ids=["greedy", "xtc", "xtc-special"])
def test_the_global_generator_is_left_alone(settings: dict[str, Any]) -> None:
    mx.random.seed(77)
    before = generator()
    generate({"seed": 8, **settings})
    assert generator() == before


def test_a_foreign_sampler_leaves_the_global_generator_alone() -> None:
    mx.random.seed(77)
    before = generator()
    generate({"seed": 8}, sampler=make_sampler(temp=0.9, top_p=0.9))
    assert generator() == before


def test_without_a_seed_the_global_one_decides_and_is_reported() -> None:
    results = []
    for _ in range(2):
        mx.random.seed(123)
        results.append(generate({"temperature": 1.0}))
    first, second = results
    assert first.tokens == second.tokens
    assert first.stats.seed == second.stats.seed
    assert generate({"temperature": 1.0, "seed": first.stats.seed}).tokens == first.tokens
    third = generate({"temperature": 1.0})
    assert third.stats.seed != first.stats.seed


def test_one_number_is_drawn_for_a_seed_and_no_more() -> None:
    mx.random.seed(5)
    mx.eval(mx.random.randint(0, 1 << 31, (2,)))
    expected = generator()
    mx.random.seed(5)
    generate({"temperature": 1.0})
    assert generator() == expected
