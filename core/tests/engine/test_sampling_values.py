"""Which values ``Sampling`` takes, what they are when none is given, and what seeds mean."""

from __future__ import annotations

import inspect
import io
import math
import re
from typing import Any

import mlx.core as mx
import pytest
from attrs import asdict
from mlx_lm.sample_utils import greedy_sampler, make_logits_processors, make_sampler

from mlxfill import InputError, Sampling
from mlxfill.sampling import SEEDS, Chooser, as_sampling, position_seed

VOCABULARY = 40
ROWS = mx.random.normal((64, VOCABULARY), key=mx.random.key(3)) * 2
PLACES = range(7, 71)


def numbers(array: mx.array) -> list[Any]:
    found: Any = array.tolist()
    return list(found)


def logprobs(logits: mx.array = ROWS) -> mx.array:
    return logits - mx.logsumexp(logits, axis=-1, keepdims=True)


def drawn(seed: int = 5, **settings: Any) -> list[int]:
    return numbers(Chooser(Sampling(seed=seed, **settings)).choose(logprobs(), PLACES))


# --- values ------------------------------------------------------------------------------

NUMBERS: list[tuple[str, list[Any], list[Any], str]] = [
    ("temperature", [0, 0.0, 0.01, 1, 1e6], [-0.01, -1, 1e6 + 1, 2e6, math.nan], "0 to 1000000"),
    ("top_p", [0, 0.5, 1, 1.0], [-0.01, -1, 1.01, 2, math.nan], "0 to 1"),
    ("min_p", [0, 0.5, 1], [-0.01, -1, 1.01, 2], "0 to 1"),
    ("xtc_probability", [0, 0.5, 1], [-0.01, -1, 1.01, 2], "0 to 1"),
    ("xtc_threshold", [0, 0.25, 0.5], [-0.01, -1, 0.51, 1, 1.5], "0 to 0.5"),
    ("repetition_penalty", [None, 0, 1.3, 1e9], [-0.01, -1, math.nan], "at least 0"),
    ("presence_penalty", [None, -1e6, 0, 1e6], [-1e6 - 1, 1e6 + 1], "-1000000 to 1000000"),
    ("frequency_penalty", [None, -1e6, 0, 1e6], [-1e6 - 1, 1e6 + 1], "-1000000 to 1000000"),
]
COUNTS: list[tuple[str, list[Any], list[Any], int]] = [
    ("top_k", [0, 1, 50], [-1, -2], 0),
    ("min_tokens_to_keep", [1, 2, 50], [0, -1], 1),
    ("repetition_context_size", [1, 50, (1 << 31) - 1], [0, -1, 1 << 31], 1),
    ("presence_context_size", [1, 50, (1 << 31) - 1], [0, -1, 1 << 31], 1),
    ("frequency_context_size", [1, 50, (1 << 31) - 1], [0, -1, 1 << 31], 1),
]


def said(name: str, value: Any) -> str:
    with pytest.raises(InputError) as refused:
        Sampling(**{name: value})
    return str(refused.value)


@pytest.mark.parametrize(("name", "legal", "wrong", "bounds"), NUMBERS, ids=lambda x: str(x)[:20])
def test_a_number_has_bounds(name: str, legal: list[Any], wrong: list[Any], bounds: str) -> None:
    for value in legal:
        assert getattr(Sampling(**{name: value}), name) == value
    for value in [*wrong, True, False, "warm", [1]]:
        assert said(name, value) == f"{name} must be {bounds}, not {value!r}"


@pytest.mark.parametrize(("name", "legal", "wrong", "least"), COUNTS, ids=lambda x: str(x)[:20])
def test_a_count_is_whole(name: str, legal: list[Any], wrong: list[Any], least: int) -> None:
    for value in legal:
        assert getattr(Sampling(**{name: value}), name) == value
    for value in [*wrong, True, False, 1.0, "3", None]:
        legal_ones = rf"(of at least {least}|from {least} to 2147483647)"
        expected = rf"{name} must be a whole number {legal_ones}, not {re.escape(repr(value))}"
        assert re.fullmatch(expected, said(name, value))


def test_a_seed_has_63_bits() -> None:
    for seed in (None, 0, 1, 1 << 32, (1 << 63) - 1):
        assert Sampling(seed=seed).seed == seed
    for wrong in (-1, 1 << 63, (1 << 63) + 1, 1.0, True, False, "7"):
        expected = f"seed must be a whole number from 0 to 2**63 - 1, not {wrong!r}"
        assert said("seed", wrong) == expected


def test_biases_are_numbers_below_infinity() -> None:
    for legal in (None, {}, {3: 1.5, 4: -2}, {3: -math.inf}):
        assert Sampling(logit_bias=legal).logit_bias == legal
    for wrong in (math.inf, math.nan, "much", None, [1]):
        assert said("logit_bias", {1: 0.5, 3: wrong}) == (
            f"logit_bias must map token ids to numbers below infinity, not to {wrong!r}"
        )
    for wrong in ([1, 2], 3, "3"):
        assert said("logit_bias", wrong) == (
            f"logit_bias must map token ids to numbers, not {wrong!r}"
        )


def test_what_depends_on_the_vocabulary() -> None:
    legal: dict[str, Any]
    for legal in ({"top_k": 39}, {"logit_bias": {0: 1.0, 39: 1.0}}, {}, {"logit_bias": {}}):
        Sampling(**legal).check_vocabulary(VOCABULARY)
    for wrong in (40, 41, 1000):
        with pytest.raises(InputError) as refused:
            Sampling(top_k=wrong).check_vocabulary(VOCABULARY)
        expected = f"top_k must be below the vocabulary size 40, not {wrong}"
        assert str(refused.value) == expected
    named: Any
    for named in (40, 41, -1, -40, "a", 1.0, None, True):
        with pytest.raises(InputError) as refused:
            Sampling(logit_bias={3: 1.0, named: 1.0}).check_vocabulary(VOCABULARY)
        expected = f"logit_bias names token {named!r}; the vocabulary is 0 to 39"
        assert str(refused.value) == expected
    for named in (40, -1):
        with pytest.raises(InputError, match=f"xtc_special_tokens names token {named};"):
            Sampling(xtc_special_tokens=(3, named)).check_vocabulary(VOCABULARY)
    Sampling(xtc_special_tokens=(0, 39), min_tokens_to_keep=40).check_vocabulary(VOCABULARY)
    with pytest.raises(InputError, match=r"min_tokens_to_keep must be at most .* 40, not 41"):
        Sampling(min_tokens_to_keep=41).check_vocabulary(VOCABULARY)


def test_nothing_given_is_what_mlx_lm_does_when_nothing_is_given() -> None:
    ours = asdict(Sampling())
    assert ours.pop("seed") is None
    assert ours.pop("temperature") == 0
    assert ours.pop("xtc_special_tokens") == ()
    theirs = {
        name: parameter.default
        for function in (make_sampler, make_logits_processors)
        for name, parameter in inspect.signature(function).parameters.items()
    }
    assert theirs["temp"] == 0
    assert ours == {name: theirs[name] for name in ours}
    assert theirs.keys() - ours.keys() == {"temp", "xtc_special_tokens"}


def test_greedy_is_a_temperature_of_nothing() -> None:
    assert Sampling().greedy
    assert Sampling(temperature=0.0, top_p=0.5).greedy
    assert not Sampling(temperature=1e-9).greedy
    assert not Sampling(temperature=1).greedy


def test_values_are_given_by_name_and_do_not_change() -> None:
    with pytest.raises(TypeError):
        Sampling(0.5)  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        Sampling().temperature = 1  # type: ignore[misc]
    special: Any = [1, 2]
    assert Sampling(xtc_special_tokens=special).xtc_special_tokens == (1, 2)


def test_a_mapping_is_a_sampling_too() -> None:
    made = Sampling(temperature=0.5, seed=3)
    assert as_sampling(made) is made
    assert as_sampling({"temperature": 0.5, "seed": 3}) == made
    assert as_sampling(None) == as_sampling({}) == Sampling()
    for wrong, named in ((3, "int"), ("hot", "str"), ([], "list")):
        with pytest.raises(InputError) as refused:
            as_sampling(wrong)
        assert str(refused.value) == f"sampling must be a Sampling or a mapping, not {named}"
    with pytest.raises(InputError, match=r"^sampling\b.*heat"):
        as_sampling({"heat": 1})


# --- seeds ---------------------------------------------------------------------------------


def test_a_given_seed_stays() -> None:
    for seed in (0, 1, 77):
        made = Sampling(seed=seed)
        assert made.seeded() is made


def test_a_seed_that_is_chosen_has_all_bits_of_two_draws() -> None:
    for start in range(60):
        mx.random.seed(start)
        high, low = numbers(mx.random.randint(0, 1 << 31, (2,)))
        mx.random.seed(start)
        expected = Sampling(temperature=0.5, seed=high * (1 << 31) + low)
        assert Sampling(temperature=0.5).seeded() == expected


GOLDEN = {
    (0, 0): 0x8209B480FAED1B10,
    (0, 1): 0x6C23AACCA1387409,
    (1, 0): 0x2D0F28C7E7E786B2,
    (7, 1000): 0x0D30C0CA827675EA,
    (1 << 62, 1 << 20): 0x5D370CFC75B4317D,
    (SEEDS - 1, 0): 0x8BA00A5C98D95613,
}
TOKENS = [29, 14, 38, 18, 35, 26, 13, 24, 32, 27, 15, 5, 33, 26, 37, 9]
LAST_TOKENS = [29, 27, 16, 27, 35, 15, 4, 26, 14, 27, 15, 5, 12, 30, 32, 23]


def test_a_stored_seed_gives_the_same_tokens_in_every_release() -> None:
    """Numbers and tokens of the first one, at every seed that may be given."""
    assert [position_seed(seed, at) for seed, at in GOLDEN] == list(GOLDEN.values())
    assert drawn(5, temperature=1.0)[:16] == TOKENS
    assert drawn(SEEDS - 1, temperature=0.6, top_p=0.9)[:16] == LAST_TOKENS


def test_a_chooser_needs_a_seed() -> None:
    with pytest.raises(InputError, match=r"^a chooser needs a seed$"):
        Chooser(Sampling())
    assert Chooser(Sampling(seed=0)).seed == 0


# --- filters -----------------------------------------------------------------------------------

FILTERS: list[dict[str, Any]] = [
    {"top_p": 0.6},
    {"top_p": 1},
    {"top_k": 1},
    {"top_k": 4},
    {"min_p": 0.3},
    {"min_p": 1},
    {"min_p": 0.9, "min_tokens_to_keep": 3},
    {"top_p": 0.7, "top_k": 3, "min_p": 0.1},
    {"top_k": 2, "min_p": 0.05, "min_tokens_to_keep": 6},
]


@pytest.mark.parametrize("filters", FILTERS, ids=str)
def test_filters_leave_what_mlx_lm_leaves(filters: dict[str, Any]) -> None:
    """Whatever may be drawn, by rows: from 1,600 draws of each at a high temperature."""
    mx.random.seed(2)
    rows = mx.tile(logprobs(ROWS[:4]), (1600, 1))
    chooser = Chooser(Sampling(seed=1, temperature=50.0, **filters))
    sampler = make_sampler(temp=50.0, **filters)
    ours = numbers(chooser.choose(rows, range(len(rows))))
    theirs = numbers(sampler(rows))
    assert {(i % 4, t) for i, t in enumerate(ours)} == {(i % 4, t) for i, t in enumerate(theirs)}


@pytest.mark.parametrize(
    "filters",
    [
        {"xtc_probability": 1.0, "xtc_threshold": 0.05},
        {"xtc_probability": 1.0, "xtc_threshold": 0.2},
        {"xtc_probability": 0.5, "xtc_threshold": 0.1, "xtc_special_tokens": [0, 5, 9]},
        {"xtc_probability": 1.0, "xtc_threshold": 0.0, "top_k": 5},
        {"xtc_probability": 0.3, "top_p": 0.8, "min_p": 0.02},
    ],
    ids=str,
)
def test_xtc_draws_as_mlx_lm_does_with_the_key_of_the_position(filters: dict[str, Any]) -> None:
    sampler = make_sampler(temp=0.9, **filters)
    rows, places = logprobs(ROWS[:24]), range(7, 31)
    expected = []
    for at, place in enumerate(places):
        mx.random.seed(position_seed(5, place))
        expected += numbers(sampler(rows[at : at + 1]))
    chooser = Chooser(Sampling(seed=5, temperature=0.9, **filters))
    assert numbers(chooser.choose(rows, places)) == expected


@pytest.mark.parametrize(
    "filters",
    [
        {"top_p": 0.61},
        {"min_p": 0.31, "min_tokens_to_keep": 3},
        {"xtc_probability": 0.41, "xtc_threshold": 0.07, "xtc_special_tokens": [0, 5]},
    ],
    ids=str,
)
def test_a_new_threshold_compiles_nothing_that_stays(filters: dict[str, Any]) -> None:
    """What is compiled stays until the process ends, and clients choose thresholds freely."""
    chosen = Chooser(Sampling(seed=5, temperature=0.9, **filters)).choose(logprobs(), PLACES)
    graph = io.StringIO()
    mx.export_to_dot(graph, chosen)
    assert "RandomBits" in graph.getvalue()
    assert "Compiled" not in graph.getvalue()


def test_filters_that_are_off_change_nothing() -> None:
    plain = drawn(temperature=1.0)
    for off in ({"top_p": 0.0}, {"top_p": 1}, {"top_k": 0}, {"min_p": 0}, {"xtc_probability": 0}):
        assert drawn(temperature=1.0, **off) == plain


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5])
def test_the_temperature_divides(temperature: float) -> None:
    chooser = Chooser(Sampling(seed=5, temperature=temperature))
    scaled = Chooser(Sampling(seed=5, temperature=1.0))
    assert numbers(chooser.choose(logprobs(), PLACES)) == numbers(
        scaled.choose(logprobs() / temperature, PLACES)
    )


# --- scores ------------------------------------------------------------------------------------


COLD = [5e-324, 1e-320, 1e-40, 3e-39, 1e-38, 1e-37, 1e-30, 1e-8, 1e-6, 1e-5]


@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16, mx.float16], ids=str)
@pytest.mark.parametrize("filters", [{}, {"top_p": 0.9}, {"top_k": 5}], ids=str)
def test_the_coldest_take_the_likeliest(dtype: mx.Dtype, filters: dict[str, Any]) -> None:
    rows = logprobs(mx.concatenate([ROWS * 20, ROWS / 20]).astype(dtype))
    best = mx.max(rows, axis=-1)
    for temperature in COLD:
        chooser = Chooser(Sampling(seed=5, temperature=temperature, **filters))
        scores = chooser.scores(rows, range(len(rows)))
        assert not mx.isnan(scores).any()
        for chosen in (chooser.choose(rows, range(len(rows))), mx.argmax(scores, axis=-1)):
            found = mx.take_along_axis(rows, chosen[:, None], axis=-1)[:, 0]
            # Among those that are as likely in this precision any will do.
            assert mx.allclose(found, best, rtol=2 * mx.finfo(dtype).eps, atol=0)


def test_cold_xtc_draws_what_it_leaves() -> None:
    for temperature in COLD:
        left: dict[str, Any] = {"xtc_probability": 1.0, "xtc_threshold": 0.05}
        assert drawn(temperature=temperature, **left) == drawn(temperature=1e-3, **left)


def test_the_score_of_a_greedy_choice_is_its_log_probability() -> None:
    rows = logprobs()
    assert mx.array_equal(Chooser(Sampling(seed=1)).scores(rows, PLACES), rows)


@pytest.mark.parametrize("temperature", [0.4, 1.0, 3.0])
def test_a_score_is_what_the_draw_compared(temperature: float) -> None:
    rows = logprobs()
    chooser = Chooser(Sampling(seed=5, temperature=temperature, top_k=6))
    scores = chooser.scores(rows, PLACES)
    assert numbers(mx.argmax(scores, axis=-1)) == numbers(chooser.choose(rows, PLACES))
    # Noise of one position is the same at every temperature, and what was filtered stays out.
    even = Chooser(Sampling(seed=5, temperature=1.0)).scores(mx.zeros(rows.shape), PLACES)
    kept = scores > -math.inf
    assert numbers(kept.sum(axis=-1)) == [6] * len(PLACES)
    off: Any = mx.where(kept, mx.abs(scores - rows / temperature - even), 0.0).max()
    assert off < 1e-4


@pytest.mark.parametrize("settings", [{"xtc_probability": 0.5}, {"sampler": True}], ids="-".join)
def test_what_draws_in_its_own_way_has_no_margins(settings: dict[str, Any]) -> None:
    sampler = make_sampler(temp=0.5) if settings.pop("sampler", False) else None
    chooser = Chooser(Sampling(seed=1, temperature=1.0, **settings), sampler)
    with pytest.raises(InputError, match=r"^a foreign sampler or XTC gives no margins$"):
        chooser.scores(logprobs(), PLACES)


# --- choosers ------------------------------------------------------------------------------------


def test_mlx_lms_greedy_sampler_is_greedy() -> None:
    chooser = Chooser(Sampling(seed=1, temperature=1.0), greedy_sampler)
    rows = logprobs()
    assert chooser.greedy
    assert numbers(chooser.choose(rows, PLACES)) == numbers(mx.argmax(rows, axis=-1))
    assert mx.array_equal(chooser.scores(rows, PLACES), rows)


def test_a_sampler_takes_the_place_of_filters_and_temperature() -> None:
    def last(row: mx.array) -> mx.array:
        assert row.shape == (1, VOCABULARY)
        assert mx.allclose(mx.exp(row).sum(), mx.array(1.0))
        return mx.argmin(row, axis=-1)

    for settings in ({}, {"temperature": 0.7, "top_k": 2}, {"temperature": 1.0, "top_p": 0.1}):
        chooser = Chooser(Sampling(seed=1, **settings), last)  # type: ignore[arg-type]
        assert not chooser.greedy
        lowest = numbers(mx.argmin(ROWS, axis=-1))
        assert numbers(chooser.choose(logprobs(), PLACES)) == lowest
        assert numbers(chooser.draw(ROWS, PLACES)) == lowest


@pytest.mark.parametrize("fails", [False, True])
def test_the_global_generator_is_set_back(*, fails: bool) -> None:
    """Both of its halves, and when a sampler raises."""

    def sampler(row: mx.array) -> mx.array:
        if fails:
            raise RuntimeError
        return mx.random.categorical(row)

    mx.random.seed((123 << 32) + 456)
    mx.random.normal((3,))
    state: Any = mx.random.state
    before = numbers(state[0])
    assert min(before) > 0
    chooser = Chooser(Sampling(seed=1), sampler)
    if fails:
        with pytest.raises(RuntimeError):
            chooser.choose(logprobs(), PLACES)
    else:
        chooser.choose(logprobs(), PLACES)
    assert numbers(state[0]) == before


@pytest.mark.parametrize("settings", [*FILTERS, {}, {"xtc_probability": 0.5}], ids=str)
def test_a_choice_leaves_the_global_generator_alone(settings: dict[str, Any]) -> None:
    state: Any = mx.random.state
    before = numbers(state[0])
    drawn(temperature=0.8, **settings)
    assert numbers(state[0]) == before


def test_a_greedy_draft_is_the_most_likely() -> None:
    assert numbers(Chooser(Sampling(seed=1)).draw(ROWS, PLACES)) == numbers(
        mx.argmax(ROWS, axis=-1)
    )


def test_drafts_may_be_drawn_with_the_same_keys_and_other_values() -> None:
    chooser = Chooser(Sampling(seed=5, temperature=1.0, top_k=3))
    other = chooser.evolved(temperature=0.5, top_k=0)
    assert other.sampling == Sampling(seed=5, temperature=0.5)
    assert numbers(other.choose(logprobs(), PLACES)) == drawn(5, temperature=0.5)
    assert chooser.evolved(temperature=0).greedy
    sampler = Chooser(Sampling(seed=5), lambda row: mx.argmin(row, axis=-1))
    assert numbers(sampler.evolved(temperature=1.0).choose(logprobs(), PLACES)) == drawn(
        5, temperature=1.0
    )


# --- penalties -----------------------------------------------------------------------------------


def test_penalties_and_bias_are_those_of_mlx_lm() -> None:
    tokens, logits = mx.array([3, 4, 3, 9, 9, 9, 1]), ROWS[:1]
    named: dict[str, Any]
    for named in (
        {"repetition_penalty": 1.7, "repetition_context_size": 3},
        {"presence_penalty": 0.8, "presence_context_size": 4},
        {"frequency_penalty": 0.6, "frequency_context_size": 5},
        {"logit_bias": {3: -4.0, 8: 2.5}},
        {
            "repetition_penalty": 0.5,
            "presence_penalty": -0.3,
            "frequency_penalty": 0.2,
            "logit_bias": {1: 1.0},
        },
    ):
        ours, theirs = mx.array(logits), mx.array(logits)  # some write into what they are handed
        for process in Sampling(**named).processors():
            ours = process(tokens, ours)
        for process in make_logits_processors(**named):
            theirs = process(tokens, theirs)
        assert mx.array_equal(ours, theirs)
        assert not mx.array_equal(ours, logits)


def test_without_penalties_there_is_nothing_to_process() -> None:
    assert Sampling(temperature=1.0, logit_bias={}).processors() == []
