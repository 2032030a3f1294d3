"""Whatever is proposed, the output is that of plain decoding; and plain decoding is mlx-lm's.

Two judges.  Greedy output must be what mlx-lm's own ``generate_step`` writes.  With any sources
and any drafter, right, wrong or sometimes right, output must be that of the plain run with the
same seed.

Some architectures and rings add up a window in another order than single steps.  There a first
difference is allowed where the plain run itself was undecided: its two best candidates stand
closer than ``MARGIN``.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
from attrs import frozen
from hypothesis import given, note, settings
from hypothesis import strategies as st
from mlx_lm.sample_utils import make_logits_processors

from mlxfill import Sampling
from mlxfill.sampling import Chooser
from mlxfill_testing import (
    ARCHITECTURES,
    EOS,
    ROUNDED,
    VOCAB,
    Guest,
    Script,
    ScriptedDrafter,
    ScriptedSource,
    engine_with,
    reference_tokens,
    shared_model,
)

MARGIN = 1e-4
SHARES = 3
"""Property tests that share the examples of a run."""
COUNT = settings().max_examples
share = settings(max_examples=max(1, COUNT // SHARES))

WIDE = {"num_attention_heads": 2, "num_key_value_heads": 1}
QUANTIZABLE: dict[str, dict[str, Any]] = {
    "llama": {**WIDE, "head_dim": 32},
    "qwen3_5": {**WIDE, "head_dim": 32},
    "qwen3": {**WIDE, "head_dim": 32},
    "lfm2": WIDE,
    "gpt2": {"n_head": 2, "num_key_value_heads": 2},
}
"""Keys and values of 32 numbers: the smallest that can be quantized."""
RINGED = ("qwen2", "gpt2", "qwen3_moe", "phi3")
"""Models whose caches mlx-lm turns into rings when ``max_kv_size`` says so."""


@frozen
class Model:
    """A model and the options that decide the kind of its cache."""

    name: str
    changes: dict[str, Any]
    options: dict[str, Any]
    exact: bool

    def made(self) -> Any:
        return shared_model(self.name, **self.changes)


@frozen
class Guesses:
    """How right a producer is and how often it speaks."""

    accuracy: float
    chance: float
    seed: int


@frozen
class Rows:
    """How a drafter answers and what it asks for."""

    guesses: Guesses
    on_device: bool
    aux: bool
    prefill_mode: Any


plain_models = st.builds(
    lambda name: Model(name, {}, {}, name not in ROUNDED), st.sampled_from(sorted(ARCHITECTURES))
)
quantized_models = st.builds(
    lambda name, bits, start: Model(
        name,
        QUANTIZABLE[name],
        {"kv_bits": bits, "kv_group_size": 32, "quantized_kv_start": start},
        exact=True,
    ),
    st.sampled_from(sorted(QUANTIZABLE)),
    st.sampled_from([4, 8]),
    st.sampled_from([0, 1, 5, 12, 20, 30]),
)
ringed_models = st.builds(
    lambda name, size: Model(name, {}, {"max_kv_size": size}, exact=False),
    st.sampled_from(RINGED),
    st.sampled_from([6, 8, 12, 20]),
)

samplings = st.fixed_dictionaries(
    {"temperature": st.sampled_from([0.0, 0.7, 1.2]), "seed": st.integers(0, 1 << 40)},
    optional={
        "top_k": st.sampled_from([1, 5, 20]),
        "top_p": st.sampled_from([0.5, 0.9]),
        "min_p": st.sampled_from([0.02, 0.2]),
        "repetition_penalty": st.sampled_from([0.8, 1.3]),
        "repetition_context_size": st.sampled_from([1, 20]),
        "presence_penalty": st.sampled_from([0.5]),
        "frequency_penalty": st.sampled_from([0.3]),
        "logit_bias": st.sampled_from([{7: 3.0, 9: -5.0}, {EOS: 2.0}]),
        "xtc_probability": st.sampled_from([0.5, 1.0]),
    },
)
limits = st.fixed_dictionaries(
    {
        "max_tokens": st.integers(1, 24),
        "prefill_step_size": st.sampled_from([1, 3, 2048]),
        "eos_token_ids": st.sampled_from([[], [EOS], list(range(0, 40, 3))]),
    },
    optional={"stop": st.sampled_from([["e"], ["th", "the"], ["in", "ing", "1 "], ["zzzz"]])},
)
prompts = st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=16)
guesses = st.builds(
    Guesses,
    st.sampled_from([0.0, 0.5, 0.8, 0.95, 1.0]),
    st.sampled_from([0.5, 1.0]),
    st.integers(0, 99),
)
drafters = st.builds(
    Rows, guesses, st.booleans(), st.booleans(), st.sampled_from(["tail-split", "full"])
)


def truth_of(model: Model, prompt: list[int], options: dict[str, Any]) -> list[int]:
    """What plain decoding would write had it no end: something to be right about."""
    endless = {**options, "max_tokens": 30, "eos_token_ids": [], "stop": ()}
    with engine_with(model.made()) as engine:
        return [*prompt, *engine.generate(prompt, **endless).tokens]


def guest(truth: list[int], source: Guesses | None, drafter: Rows | None) -> Guest:
    made = Guest()
    if source is not None:
        script = Script(truth, source.accuracy, source.seed)
        made.sources = [
            lambda request: ScriptedSource(request=request, script=script, chance=source.chance)
        ]
    if drafter is not None:
        said = drafter.guesses
        made.drafter = ScriptedDrafter(
            script=Script(truth, said.accuracy, said.seed),
            chance=said.chance,
            on_device=drafter.on_device,
            aux_layers=(0, 1) if drafter.aux else (),
            prefill_mode=drafter.prefill_mode,
        )
    return made


def undecided(plain: Any, model: Model, options: dict[str, Any], start: int, at: int) -> bool:
    """Whether the plain run's two best candidates for its token ``at`` stand close together."""
    fields = {k: v for k, v in options.items() if hasattr(Sampling, k) or k == "seed"}
    chooser = Chooser(Sampling(**fields))
    row = plain[at].logprobs
    scores = chooser.scores(row[None], [start + at])[0]
    best: Any = mx.sort(scores)[-2:].tolist()
    note(f"{model.name}: candidates at {at} are {best[1] - best[0]} apart")
    return bool(best[1] - best[0] < MARGIN)


Case = tuple[Model, list[int], dict[str, Any], dict[str, Any], Guesses | None, Rows | None]


def cases(models: st.SearchStrategy[Model]) -> st.SearchStrategy[Case]:
    return st.tuples(models, prompts, samplings, limits, st.none() | guesses, st.none() | drafters)


def check(case: Case) -> None:
    model, prompt, sampling, limit, source, drafter = case
    if not model.exact:
        sampling.pop("xtc_probability", None)  # a filter that draws leaves no margin to look at
    options = {**model.options, **sampling, **limit}
    truth = truth_of(model, prompt, options)
    with engine_with(model.made()) as engine:
        run = engine.stream(prompt, logprobs=True, **options)
        pieces = [piece for piece in run if piece.token is not None]
        plain = run.result()
    plugged = guest(truth, source, drafter)
    with engine_with(model.made(), plugged) as engine:
        result = engine.generate(prompt, **options)

    assert result.faults == []
    stats = result.stats
    assert sum(stats.rounds) == stats.generated_tokens == len(result.tokens)
    assert len(result.origins) == len(result.tokens)
    known = [*prompt, *result.tokens]
    assert list(stats.cache_tokens[: len(known)]) == known[: len(stats.cache_tokens)]

    same = sum(1 for _ in _alike(plain.tokens, result.tokens))
    if same < max(len(plain.tokens), len(result.tokens)):
        assert not model.exact, (plain.tokens, result.tokens)
        assert undecided(pieces, model, options, len(prompt), same)
        return
    assert result.text == plain.text
    assert result.finish_reason == plain.finish_reason
    for seated in plugged.seated:
        assert len(seated.outcomes) == len(seated.offered)
        assert seated.seen == [*prompt, *seated.seen[len(prompt) :]]


def _alike(a: list[int], b: list[int]) -> Any:
    for x, y in zip(a, b, strict=False):
        if x != y:
            return
        yield x


@share
@given(cases(plain_models))
def test_proposals_change_nothing(case: Case) -> None:
    check(case)


@share
@given(cases(quantized_models))
def test_proposals_change_nothing_in_quantized_caches(case: Case) -> None:
    check(case)


@share
@given(cases(ringed_models))
def test_proposals_change_nothing_in_rings(case: Case) -> None:
    check(case)


# --- plain decoding is mlx-lm's ------------------------------------------------------------

penalties = st.fixed_dictionaries(
    {},
    optional={
        "repetition_penalty": st.sampled_from([0.8, 1.3]),
        "repetition_context_size": st.sampled_from([1, 20]),
        "presence_penalty": st.sampled_from([0.5]),
        "frequency_penalty": st.sampled_from([0.3]),
        "logit_bias": st.sampled_from([{7: 3.0, 9: -5.0}]),
    },
)


@settings(max_examples=max(1, COUNT // SHARES))
@given(
    plain_models | quantized_models | ringed_models,
    prompts,
    penalties,
    st.integers(1, 24),
    st.sampled_from([1, 3, 2048]),
)
def test_greedy_plain_decoding_is_mlx_lms(
    model: Model, prompt: list[int], penalty: dict[str, Any], count: int, step: int
) -> None:
    options = {**model.options, "prefill_step_size": step}
    expected = reference_tokens(
        model.made(),
        prompt,
        count,
        logits_processors=make_logits_processors(**penalty),
        **options,
    )
    with engine_with(model.made()) as engine:
        result = engine.generate(prompt, max_tokens=count, eos_token_ids=[], **penalty, **options)
    assert result.tokens == expected
