"""Whatever the draft model says, the text is the target's; and it says the right thing often."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import mlx.core as mx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlx_lm.generate import speculative_generate_step

from mlxfill import Policy, Result
from mlxfill.model import reading
from mlxfill_spec_two_model import TwoModelSettings
from mlxfill_testing import (
    EOS,
    VOCAB,
    Guest,
    Script,
    ScriptedSource,
    engine_with,
    perturbed,
    shared_model,
    tiny_model,
)

PROMPT = [7, 21, 3, 40, 55, 3, 12, 7, 21]
WIDE = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32}
"""Heads that 4- and 8-bit caches can hold."""
MODELS: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen3_moe": {},
    "gemma3_text": {},
    "qwen3_5": {},
    "mamba2": {},
    "llama with 8-bit keys and values": WIDE,
}
Drafting = Callable[..., Guest]


def model_of(kind: str) -> Any:
    return shared_model(kind.split(maxsplit=1)[0], **MODELS[kind])


def options_of(kind: str) -> dict[str, Any]:
    quantized = {"kv_bits": 8, "kv_group_size": 32, "quantized_kv_start": 14}
    return quantized if "8-bit" in kind else {}


def draft_of(kind: str, noise: float) -> Any:
    """The target's weights with noise: always right, sometimes, or (2) hardly ever."""
    name = kind.split(maxsplit=1)[0]
    return perturbed(model_of(kind), tiny_model(name, seed=9, **MODELS[kind]), noise)


def written(model: Any, *guests: Guest, **options: Any) -> Result:
    options = {"max_tokens": 32, "eos_token_ids": [EOS], "seed": 3, **options}
    with engine_with(model, *guests, trusted=["fills"]) as engine:
        result = engine.generate(PROMPT, **options)
    assert [fault for fault in result.faults if "by chance" not in fault.message] == []
    assert sum(result.stats.rounds) == result.stats.generated_tokens == len(result.tokens)
    return result


@pytest.mark.parametrize("kind", MODELS)
@given(
    noise=st.sampled_from([0.0, 0.1, 0.3, 2.0]),
    temperature=st.sampled_from([0.0, 0.7, 1.2]),
    depth=st.integers(1, 5),
    fills=st.sampled_from([None, Policy.VERIFY, Policy.ASSERT]),
    penalty=st.sampled_from([None, None, 1.3]),
    ends=st.none() | st.integers(1, 30),
    seed=st.integers(0, 99),
)
def test_the_text_is_that_of_plain_decoding(  # noqa: PLR0913, PLR0917 - one example
    drafting: Drafting,
    kind: str,
    noise: float,
    temperature: float,
    depth: int,
    fills: Policy | None,
    penalty: float | None,
    ends: int | None,
    seed: int,
) -> None:
    model = model_of(kind)
    options: dict[str, Any] = {"temperature": temperature, "seed": seed}
    options["repetition_penalty"] = penalty
    options |= options_of(kind)
    plain = written(model, **options)
    if ends is not None and ends < len(plain.tokens):  # an end inside a burst
        options["eos_token_ids"] = [plain.tokens[ends]]
        plain = written(model, **options)
    guests = [drafting(draft_of(kind, noise), name="drafts")]
    if fills is not None:
        accuracy = 1.0 if fills is Policy.ASSERT else 0.7
        script = Script([*PROMPT, *plain.tokens], accuracy, seed)
        known = len(PROMPT) + len(plain.tokens)
        source = partial(Guessing, script=script, policy=fills, chance=0.3, known=known)
        guests.append(Guest(name="fills", sources=[source]))
    result = written(model, *guests, num_draft_tokens=depth, **options)
    assert result.tokens == plain.tokens
    assert result.finish_reason == plain.finish_reason


@pytest.mark.usefixtures("fused")
def test_nor_does_a_compiled_step_change_it(drafting: Drafting) -> None:
    for temperature in (0.0, 0.7):
        plain = written(model_of("llama"), temperature=temperature)
        guest = drafting(draft_of("llama", 0.1), name="drafts")
        assert written(model_of("llama"), guest, temperature=temperature).tokens == plain.tokens


class Guessing(ScriptedSource):
    """Offers nothing beyond the known text: an assert there would be a wrong one."""

    def __init__(self, request: Any, known: int, **script: Any) -> None:
        super().__init__(request=request, **script)
        self.known = known

    def propose(self, view: Any) -> Any:
        proposal = super().propose(view)
        safe = proposal is not None and view.length + len(proposal.ids) <= self.known
        return proposal if safe else None


@pytest.mark.parametrize("filters", [{}, {"top_k": 12, "top_p": 0.9}, {"min_p": 0.05}])
@pytest.mark.parametrize("kind", ["llama", "qwen3_5"])
def test_a_target_that_drafts_for_itself_is_right_at_any_temperature(
    drafting: Drafting, kind: str, filters: dict[str, Any]
) -> None:
    """Drafts are drawn with the key of their position: equal distributions draw equal ids."""
    rates = []
    for temperature in (0.0, 0.7, 1.2):
        guest = drafting(draft_of(kind, 0.0))
        options = {"temperature": temperature, "eos_token_ids": [], "max_tokens": 60, **filters}
        spec = written(model_of(kind), guest, **options).stats.spec
        rates.append(spec["accepted"] / spec["drafted"])
    assert min(rates[1:]) >= 0.9 * rates[0]
    assert rates[0] > 0.95


@pytest.mark.parametrize("noise", [0.1, 0.3])
def test_greedy_is_what_mlx_lm_s_speculative_loop_writes(drafting: Drafting, noise: float) -> None:
    target, draft = model_of("llama"), draft_of("llama", noise)
    steps = speculative_generate_step(
        mx.array(PROMPT), target, draft, num_draft_tokens=3, max_tokens=40
    )
    theirs = [(int(token), from_draft) for token, _, from_draft in steps]
    guest = drafting(draft)
    result = written(target, guest, num_draft_tokens=3, eos_token_ids=[], max_tokens=40)
    assert result.tokens == [token for token, _ in theirs]
    # Theirs begins with a round; ours takes the first token from the prompt's own forward.
    assert 0 < result.origins.count("draft") <= sum(from_draft for _, from_draft in theirs) + 3


def test_mlx_lm_refuses_the_hybrid_target_that_we_take(drafting: Drafting) -> None:
    model, draft = model_of("qwen3_5"), draft_of("qwen3_5", 0.1)
    with pytest.raises(ValueError, match="trimmable"):
        next(speculative_generate_step(mx.array(PROMPT), model, draft))
    assert written(model, drafting(draft)).stats.spec["accepted"] > 0


RUNS = 300


def third_tokens(model: Any, seeds: range, *guests: Guest) -> Counter[int]:
    options: dict[str, Any] = {"temperature": 1.0, "top_k": 8, "top_p": 0.95}
    options |= {"max_tokens": 3, "eos_token_ids": []}
    with engine_with(model, *guests) as engine:
        return Counter(engine.generate(PROMPT, seed=seed, **options).tokens[2] for seed in seeds)


@cache
def third_tokens_of_plain_decoding() -> Counter[int]:
    return third_tokens(shared_model("llama", num_hidden_layers=1), range(RUNS))


@pytest.mark.parametrize("settings", [{}, {"filters": False}, {"greedy": True}])
def test_drafting_leaves_the_law_of_sampled_text(
    drafting: Drafting, settings: dict[str, bool]
) -> None:
    """Chi-square of the third token over 64 ids, drafts on and off, on seeds of their own."""
    model = shared_model("llama", num_hidden_layers=1)
    draft = perturbed(model, tiny_model("llama", num_hidden_layers=1), 0.2)
    off = third_tokens_of_plain_decoding()
    on = third_tokens(model, range(RUNS, 2 * RUNS), drafting(draft, TwoModelSettings(**settings)))
    statistic = sum((off[t] - on[t]) ** 2 / (off[t] + on[t]) for t in {*off, *on})
    freedom = len({*off, *on}) - 1
    assert freedom > 5
    assert statistic < freedom + 4 * (2 * freedom) ** 0.5


@pytest.mark.parametrize("length", [1, 2, 3])
def test_short_prompts(drafting: Drafting, length: int) -> None:
    model, draft = model_of("qwen3_5"), draft_of("qwen3_5", 0.1)
    options: dict[str, Any] = {"max_tokens": 20, "eos_token_ids": []}
    with engine_with(model) as plain, engine_with(model, drafting(draft)) as drafted:
        result = drafted.generate(PROMPT[:length], **options)
        assert result.tokens == plain.generate(PROMPT[:length], **options).tokens
    assert result.faults == []
    assert result.stats.spec["drafted"] > 0


def test_a_prewarmed_cache_is_caught_up_on(drafting: Drafting) -> None:
    """The cache holds the target's half only: the draft model reads those tokens itself."""
    model, draft = model_of("qwen3_5"), draft_of("qwen3_5", 0.0)
    with engine_with(model, drafting(draft)) as engine:
        first = engine.generate(PROMPT, max_tokens=4, keep_cache=True)
        assert first.cache is not None
        longer = [*first.cache.tokens, 5, 6]
        result = engine.generate(longer, max_tokens=20, cache=first.cache, eos_token_ids=[])
    with engine_with(model) as plain:
        assert result.tokens == plain.generate(longer, max_tokens=20, eos_token_ids=[]).tokens
    assert result.faults == []
    assert result.stats.spec["rejected"] == 0


# --- settings -----------------------------------------------------------------------------


@pytest.mark.parametrize("noise", [0.0, 0.3])
@pytest.mark.parametrize(
    "settings",
    [{"greedy": True}, {"temperature": 0.3}, {"temperature": 2.0}, {"filters": False}],
)
def test_drafts_of_their_own_change_no_text(
    drafting: Drafting, settings: dict[str, Any], noise: float
) -> None:
    model = model_of("llama")
    options = {"temperature": 0.9, "top_k": 20, "top_p": 0.9}
    guest = drafting(draft_of("llama", noise), TwoModelSettings(**settings))
    assert written(model, guest, **options).tokens == written(model, **options).tokens


def test_greedy_drafts_are_the_likeliest_ids(drafting: Drafting) -> None:
    """At a temperature that draws anything, greedy drafts of the target itself are often wrong."""
    options = {"temperature": 1.5, "eos_token_ids": [], "max_tokens": 60}
    model, draft = model_of("llama"), draft_of("llama", 0.0)
    accepted = [
        written(model, drafting(draft, TwoModelSettings(greedy=greedy)), **options).stats.spec
        for greedy in (False, True)
    ]
    assert accepted[0]["rejected"] == 0
    assert accepted[1]["rejected"] > 0


# --- vocabularies -------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("size", [48, 80])
def test_ids_that_only_one_side_has_are_never_proposed(
    drafting: Drafting, size: int, temperature: float
) -> None:
    """A draft with more ids, or with fewer than the text holds, works and changes nothing."""
    draft = tiny_model("llama", seed=1, vocab_size=size)
    model = model_of("llama")
    options = {"temperature": temperature, "eos_token_ids": [], "top_k": 50}
    plain = written(model, **options)
    result = written(model, drafting(draft), **options)
    assert result.tokens == plain.tokens
    assert max(plain.tokens) >= 48
    assert result.stats.spec["drafted"] > 0


@pytest.mark.parametrize("size", [64, 80])
def test_the_same_noise_is_drawn_for_the_same_ids(drafting: Drafting, size: int) -> None:
    """Surplus rows of the draft's head do not cost agreement."""
    model = model_of("llama")
    draft = tiny_model("llama", vocab_size=size)
    draft.update(model.parameters())
    if size > VOCAB:
        table = model.model.embed_tokens.weight
        surplus = mx.ones((size - VOCAB, table.shape[1]))
        draft.model.embed_tokens.weight = mx.concatenate([table, surplus])
    spec = written(model, drafting(draft), temperature=0.8, eos_token_ids=[]).stats.spec
    assert spec["rejected"] == 0


# --- one read a round ------------------------------------------------------------------------


def test_a_round_is_read_once(drafting: Drafting, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[int] = []
    read = reading.ids

    def counted(array: mx.array) -> list[int]:
        reads.append(array.size)
        return read(array)

    monkeypatch.setattr("mlxfill.forward.runner.ids_of", counted)
    result = written(model_of("qwen3_5"), drafting(draft_of("qwen3_5", 0.2)), num_draft_tokens=3)
    rounds = len(result.stats.spec["acceptance_lengths"])
    assert len(reads) == rounds > 0
    assert set(reads[:-3]) == {2 * 3 + 1}  # samples and drafts together
