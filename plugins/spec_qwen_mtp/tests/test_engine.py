"""Whatever the head says, the text is the target's; and it says the right thing often."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxfill import Policy, Result
from mlxfill_testing import EOS, Guest, Script, ScriptedSource, engine_with, shared_model

PROMPT = [7, 21, 3, 40, 55, 3, 12, 7, 21]
WIDE = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32}
"""Heads that 4- and 8-bit caches can hold."""
UNTIED = {"tie_word_embeddings": False}
MODELS: dict[str, dict[str, Any]] = {
    "llama": UNTIED,
    "qwen3_moe": UNTIED,
    "gemma3_text": {},
    "qwen3_5": UNTIED,
    "qwen3_5 tied": {},
    "llama with 8-bit keys and values": {**WIDE, **UNTIED},
}
EXPERTS = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
}
Drafting = Callable[..., Guest]
MakeTarget = Callable[..., Any]
_made: dict[str, Any] = {}


@pytest.fixture
def target_of(make_target: MakeTarget) -> Callable[[str], Any]:
    """Targets that a head without noise is mostly right about."""

    def make(kind: str) -> Any:
        if kind not in _made:
            _made[kind] = make_target(kind.split(maxsplit=1)[0], **MODELS[kind])
        return _made[kind]

    return make


def options_of(kind: str) -> dict[str, Any]:
    quantized = {"kv_bits": 8, "kv_group_size": 32, "quantized_kv_start": 14}
    return quantized if "8-bit" in kind else {}


def written(model: Any, *guests: Guest, **options: Any) -> Result:
    options = {"max_tokens": 32, "eos_token_ids": [EOS], "seed": 3, **options}
    with engine_with(model, *guests, trusted=["fills"]) as engine:
        result = engine.generate(PROMPT, **options)
    assert [fault for fault in result.faults if "by chance" not in fault.message] == []
    assert sum(result.stats.rounds) == result.stats.generated_tokens == len(result.tokens)
    return result


@pytest.mark.usefixtures("fused")
def test_a_compiled_step_changes_no_text(
    drafting: Drafting, target_of: Callable[[str], Any]
) -> None:
    model = target_of("qwen3_5")
    for temperature in (0.0, 0.7):
        plain = written(model, temperature=temperature)
        assert written(model, drafting(), temperature=temperature).tokens == plain.tokens


@pytest.mark.parametrize("kind", MODELS)
@given(
    noise=st.sampled_from([0.0, 0.1, 0.5]),
    temperature=st.sampled_from([0.0, 0.7, 1.2]),
    depth=st.integers(1, 3),
    fills=st.sampled_from([None, Policy.VERIFY, Policy.ASSERT]),
    penalty=st.sampled_from([None, None, 1.3]),
    ends=st.none() | st.integers(1, 30),
    seed=st.integers(0, 99),
)
def test_the_text_is_that_of_plain_decoding(  # noqa: PLR0913, PLR0917 - one example
    drafting: Drafting,
    target_of: Callable[[str], Any],
    kind: str,
    noise: float,
    temperature: float,
    depth: int,
    fills: Policy | None,
    penalty: float | None,
    ends: int | None,
    seed: int,
) -> None:
    model = target_of(kind)
    options: dict[str, Any] = {"temperature": temperature, "seed": seed}
    options["repetition_penalty"] = penalty
    options |= options_of(kind)
    plain = written(model, **options)
    if ends is not None and ends < len(plain.tokens):  # an end inside a burst
        options["eos_token_ids"] = [plain.tokens[ends]]
        plain = written(model, **options)
    held_rows = "chained" if seed % 2 else "true"
    guests = [drafting(noise, name="drafts", held_rows=held_rows)]
    if fills is not None:
        accuracy = 1.0 if fills is Policy.ASSERT else 0.7
        script = Script([*PROMPT, *plain.tokens], accuracy, seed)
        known = len(PROMPT) + len(plain.tokens)
        source = partial(Guessing, script=script, policy=fills, chance=0.3, known=known)
        guests.append(Guest(name="fills", sources=[source]))
    result = written(model, *guests, num_draft_tokens=depth, **options)
    assert result.tokens == plain.tokens
    assert result.finish_reason == plain.finish_reason


class Guessing(ScriptedSource):
    """Offers nothing beyond the known text: an assert there would be a wrong one."""

    def __init__(self, request: Any, known: int, **script: Any) -> None:
        super().__init__(request=request, **script)
        self.known = known

    def propose(self, view: Any) -> Any:
        proposal = super().propose(view)
        safe = proposal is not None and view.length + len(proposal.ids) <= self.known
        return proposal if safe else None


@pytest.mark.parametrize("kind", [kind for kind in MODELS if kind != "gemma3_text"])
def test_a_head_that_knows_the_target_is_right_most_of_the_time(
    drafting: Drafting, target_of: Callable[[str], Any], kind: str
) -> None:
    options = {**options_of(kind), "eos_token_ids": [], "max_tokens": 60}
    spec = written(target_of(kind), drafting(), **options).stats.spec
    assert spec["accepted"] > 0.5 * spec["drafted"]
    assert set(spec["acceptance_lengths"]) <= {0, 1, 2}
    wrong = written(target_of(kind), drafting(0.5), **options).stats.spec
    assert wrong["accepted"] < 0.5 * wrong["drafted"]


def test_sampled_drafts_are_right_about_as_often_as_greedy_ones(
    drafting: Drafting, target_of: Callable[[str], Any]
) -> None:
    """Drafts are drawn with the key of their position: like distributions draw like ids."""
    rates = []
    for temperature in (0.0, 0.7):
        spec: Counter[str] = Counter()
        for seed in range(4):
            options = {"temperature": temperature, "eos_token_ids": [], "max_tokens": 60}
            result = written(target_of("qwen3_5"), drafting(), seed=seed, **options)
            spec += Counter(accepted=result.stats.spec["accepted"])
            spec += Counter(drafted=result.stats.spec["drafted"])
        rates.append(spec["accepted"] / spec["drafted"])
    assert rates[1] >= 0.8 * rates[0]
    assert rates[0] > 0.5


def test_a_head_with_experts_drafts_too(
    drafting: Drafting, target_of: Callable[[str], Any]
) -> None:
    model = target_of("qwen3_5")
    result = written(model, drafting(layer=EXPERTS), eos_token_ids=[])
    assert result.tokens == written(model, eos_token_ids=[]).tokens
    assert result.stats.spec["accepted"] > 0


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_draft_vocabulary_changes_no_text(
    drafting: Drafting, target_of: Callable[[str], Any], temperature: float
) -> None:
    model = target_of("qwen3_5")
    options = {"temperature": temperature, "eos_token_ids": [], "max_tokens": 60}
    plain = written(model, **options)
    some = tuple(sorted(set(plain.tokens[:30])))
    result = written(model, drafting(vocabulary=some), **options)
    assert result.tokens == plain.tokens
    drafted = {t for t, o in zip(result.tokens, result.origins, strict=True) if o == "mtp"}
    assert drafted
    assert drafted <= set(some)


def test_drafting_leaves_the_law_of_sampled_text(
    drafting: Drafting, target_of: Callable[[str], Any]
) -> None:
    """Chi-square of the third token over 64 ids, drafts on and off, on seeds of their own."""
    runs, model = 300, target_of("llama")
    options: dict[str, Any] = {"temperature": 1.5, "top_k": 8, "top_p": 0.95}
    options |= {"max_tokens": 3, "eos_token_ids": []}
    counts: list[Counter[int]] = []
    for guests in ([], [drafting()]):
        with engine_with(model, *guests) as engine:
            seeds = range(runs * len(counts), runs * (len(counts) + 1))
            drawn = [engine.generate(PROMPT, seed=seed, **options).tokens[2] for seed in seeds]
        counts.append(Counter(drawn))
    off, on = counts
    statistic = sum((off[t] - on[t]) ** 2 / (off[t] + on[t]) for t in {*off, *on})
    freedom = len({*off, *on}) - 1
    assert freedom > 5
    assert statistic < freedom + 4 * (2 * freedom) ** 0.5


@pytest.mark.parametrize("length", [1, 2, 3])
def test_short_prompts(drafting: Drafting, target_of: Callable[[str], Any], length: int) -> None:
    model = target_of("qwen3_5")
    prompt = PROMPT[:length]
    options: dict[str, Any] = {"max_tokens": 20, "eos_token_ids": []}
    with engine_with(model) as plain, engine_with(model, drafting()) as drafted:
        result = drafted.generate(prompt, **options)
        assert result.tokens == plain.generate(prompt, **options).tokens
    assert result.faults == []
    assert result.stats.spec["drafted"] > 0


def test_a_prewarmed_cache_without_states_is_a_named_fault(
    drafting: Drafting, target_of: Callable[[str], Any]
) -> None:
    model = target_of("qwen3_5")
    with engine_with(model, drafting()) as engine:
        first = engine.generate(PROMPT, max_tokens=4, keep_cache=True)
        longer = [*first.cache.tokens, 5, 6] if first.cache else []
        result = engine.generate(longer, max_tokens=8, cache=first.cache, eos_token_ids=[])
    with engine_with(model) as plain:
        assert result.tokens == plain.generate(longer, max_tokens=8, eos_token_ids=[]).tokens
    assert [fault.plugin for fault in result.faults] == ["guest"]
    assert "no states" in result.faults[0].message


def test_prompts_in_chunks(drafting: Drafting, target_of: Callable[[str], Any]) -> None:
    model = target_of("qwen3_5")
    options: dict[str, Any] = {"max_tokens": 24, "eos_token_ids": [], "num_draft_tokens": 2}
    with engine_with(model, drafting()) as engine:
        whole = engine.generate(PROMPT * 3, **options)
        pieces = engine.generate(PROMPT * 3, prefill_step_size=4, **options)
    assert pieces.tokens == whole.tokens
    lengths = "acceptance_lengths"
    assert pieces.stats.spec[lengths] == whole.stats.spec[lengths]


def test_a_round_is_read_once(
    drafting: Drafting, target_of: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlxfill.model import reading

    reads: list[int] = []
    read = reading.ids

    def counted(array: Any) -> list[int]:
        reads.append(array.size)
        return read(array)

    monkeypatch.setattr("mlxfill.forward.runner.ids_of", counted)
    result = written(target_of("qwen3_5"), drafting(), eos_token_ids=[])
    assert len(reads) == len(result.stats.spec["acceptance_lengths"]) > 0
    assert set(reads[:-3]) == {2 * 2 + 1}  # samples and drafts together


@cache
def plain_of(name: str) -> tuple[int, ...]:
    return tuple(written(shared_model(name), eos_token_ids=[]).tokens)


@pytest.mark.parametrize("name", ["lfm2", "mamba2", "gpt_oss", "falcon_h1"])
def test_targets_of_any_kind_take_a_head(drafting: Drafting, name: str) -> None:
    """Random targets about which the head is nearly always wrong."""
    result = written(shared_model(name), drafting(), eos_token_ids=[])
    assert tuple(result.tokens) == plain_of(name)
    assert result.stats.spec["drafted"] > 0
