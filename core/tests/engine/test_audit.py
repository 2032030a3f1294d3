"""An audit finds what plain decoding would have written otherwise, and nothing else."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import mlx.core as mx
import pytest
from attrs import evolve

from mlxfill import InputError, Policy, RowScheduler
from mlxfill.audit.audit import Audit, Difference
from mlxfill.audit.replay import gap_moved
from mlxfill.rewind.window import CacheWindow
from mlxfill_testing import (
    Guest,
    Script,
    ScriptedDrafter,
    ScriptedSource,
    engine_with,
    shared_model,
    tiny_tokenizer,
)

PROMPT = [5, 9, 14, 21, 7, 30, 11, 2]
OPTIONS: dict[str, Any] = {"max_tokens": 24, "eos_token_ids": []}
EXACT = ["llama", "qwen3_5", "lfm2"]
"""Windows and steps are bit-identical on these."""


@cache
def plain(name: str = "llama", temperature: float = 0.0) -> list[int]:
    """Prompt and what plain decoding writes."""
    with engine_with(shared_model(name)) as engine:
        result = engine.generate(PROMPT, temperature=temperature, seed=3, **OPTIONS)
    return PROMPT + result.tokens


def source(
    accuracy: float, *, truth: list[int] | None = None, policy: Policy = Policy.VERIFY
) -> Guest:
    script = Script(plain() if truth is None else truth, accuracy)
    return Guest(
        sources=[lambda request: ScriptedSource(request=request, script=script, policy=policy)]
    )


def audited(*guests: Guest, model: Any = None, **options: Any) -> Audit:
    model = shared_model("llama") if model is None else model
    with engine_with(model, *guests, trusted=["guest"]) as engine:
        return engine.audit(PROMPT, **{**OPTIONS, **options})


# --- runs that keep the promise ----------------------------------------------------


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("name", EXACT)
def test_verified_proposals_leave_the_text_as_it_is(name: str, temperature: float) -> None:
    truth = plain(name, temperature)
    guest = source(0.7, truth=truth)
    found = audited(guest, model=shared_model(name), temperature=temperature, seed=3)
    assert found.identical
    assert found.noise == 0.0
    assert found.caches == 0.0
    assert PROMPT + found.result.tokens == truth
    assert found.result.faults == []


def test_each_judged_token_stands_beside_the_models_own() -> None:
    guest = source(0.7)
    found = audited(guest)
    truth = plain()
    judged = 0
    for each in found.proposed:
        assert each.position == each.generated + len(PROMPT)
        assert each.model == truth[each.position]
        assert each.agrees == each.entered == (each.proposed == each.model)
        assert (each.plugin, each.origin, each.policy) == ("guest", "scripted", Policy.VERIFY)
        assert each.margin is not None
        assert each.behind is not None
        assert each.margin > 0
        assert each.behind == 0 if each.agrees else each.behind >= each.margin
        judged += 1
    accepted = sum(outcome.accepted for outcome in guest.seated[0].outcomes)
    assert sum(each.entered for each in found.proposed) == accepted
    assert judged > accepted > 5


def test_margins_are_those_of_the_logits() -> None:
    found, truth = audited(source(0.7)), plain()
    model = shared_model("llama")
    for each in found.proposed:
        logits = model(mx.array([truth[: each.position]]))[0, -1]
        best, second = sorted(logits.tolist())[:-3:-1]
        assert each.margin == pytest.approx(best - second, abs=1e-4)
        assert each.behind == pytest.approx(best - logits[each.proposed].item(), abs=1e-4)


def test_true_asserts_are_identical_too() -> None:
    found = audited(source(1.0, policy=Policy.ASSERT))
    assert found.identical
    assert {(each.policy, each.agrees) for each in found.proposed} == {(Policy.ASSERT, True)}
    assert found.result.stats.fill["injected"] == len(found.proposed)


def test_drafts_are_audited() -> None:
    script = Script(plain(), 0.7)
    found = audited(Guest(name="drafting", drafter=ScriptedDrafter(script=script)))
    assert found.identical
    assert {each.origin for each in found.proposed} == {"draft"}
    assert found.result.stats.spec["accepted"] == sum(each.entered for each in found.proposed)


@pytest.mark.parametrize(
    "options",
    [
        {"repetition_penalty": 1.4},
        {"temperature": 0.9, "top_k": 8, "min_p": 0.05, "seed": 5},
        {"temperature": 0.9, "xtc_probability": 0.5, "seed": 5},
        {"max_kv_size": 12},
        {"kv_bits": 8, "kv_group_size": 32, "quantized_kv_start": 14},
        {"kv_bits": 4, "kv_group_size": 32, "quantized_kv_start": 2, "snapshot_at": 4},
        {"stop": ["e"]},
        {"max_tokens": 1},
    ],
)
def test_options_are_repeated(options: dict[str, Any]) -> None:
    model = shared_model("llama", head_dim=32)
    with engine_with(model) as engine:
        expected = engine.generate(PROMPT, **{**OPTIONS, **options}).tokens
    found = audited(source(0.7, truth=PROMPT + expected), model=model, **options)
    assert found.result.tokens == expected
    assert found.identical


def test_a_run_that_ends_by_itself_is_compared_up_to_its_end() -> None:
    truth = plain()
    first = next(i for i in range(len(PROMPT) + 6, len(truth)) if truth[i] not in truth[:i])
    found = audited(source(0.7), eos_token_ids=[truth[first]])
    assert found.result.finish_reason == "stop"
    assert PROMPT + found.result.tokens == truth[:first]
    assert found.identical
    assert found.caches == 0.0


def test_a_run_without_tokens_has_nothing_to_compare() -> None:
    found = audited(source(0.7), max_tokens=0)
    assert (found.identical, list(found.proposed), found.caches) == (True, [], None)


def test_sources_are_made_for_the_run_and_not_for_its_repetition() -> None:
    guest = source(0.7)
    audited(guest)
    assert len(guest.seated) == 1
    assert [event.kind for event in guest.events].count("request") == 1


def test_a_seed_that_was_chosen_is_repeated() -> None:
    assert audited(source(0.3), temperature=1.2).identical


# --- runs that do not --------------------------------------------------------------


def test_an_untruthful_assert_shows_up() -> None:
    found, truth = audited(source(0.5, policy=Policy.ASSERT)), plain()
    text = PROMPT + found.result.tokens
    first = next(i for i in range(len(text)) if text[i] != truth[i])
    assert not found.identical
    assert found.difference is not None
    assert (found.difference.position, found.difference.origin) == (first, "scripted")
    assert (found.difference.token, found.difference.model) == (text[first], truth[first])
    assert found.difference.behind is not None
    assert found.difference.behind > 0.01
    assert not found.difference.rounding
    lies = [each for each in found.proposed if not each.agrees]
    assert lies[0].position == first
    assert all(each.entered for each in lies)
    assert found.caches == 0.0


def test_the_same_source_verified_does_not() -> None:
    assert audited(source(0.5, policy=Policy.ASSERT), sources_policy="verify").identical


@pytest.mark.parametrize("name", ["llama", "mamba2"])
def test_broken_caches_show_up_even_where_nothing_counts_tokens(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rewind = CacheWindow.rewind
    guest = source(0.5, truth=plain(name))
    with engine_with(shared_model(name), guest) as engine:
        assert engine.no_rewind() == ""
        monkeypatch.setattr(
            CacheWindow, "rewind", lambda self, keep: rewind(self, max(keep - 1, 0))
        )
        found = engine.audit(PROMPT, **OPTIONS)
    assert not found.identical
    assert found.caches is None or found.caches > found.noise


def test_only_the_noise_of_the_precision_explains_a_difference() -> None:
    difference = Difference(9, 1, "sampled", 3, 4, behind=0.02, noise=0.05)
    assert difference.rounding
    assert not evolve(difference, behind=0.06).rounding
    assert not evolve(difference, behind=None).rounding


def test_noise_is_what_moves_the_distance_of_two_logits() -> None:
    ours = mx.array([1.0, 2.0, 3.0, -mx.inf])
    assert gap_moved(ours, ours + 5) == 0.0
    assert gap_moved(ours, mx.array([1.5, 2.0, 2.75, 0.0])) == 0.75


def test_the_noise_of_a_model_is_measured() -> None:
    found = audited(source(0.7, truth=plain("mamba2")), model=shared_model("mamba2"))
    assert found.identical
    assert 0.0 < found.noise < 1e-3


# --- what cannot be audited --------------------------------------------------------


def test_a_prompt_cache_of_mlx_lm_is_refused() -> None:
    with engine_with(shared_model("llama")) as engine:
        caches = engine.target.new_cache()
        with pytest.raises(InputError, match="give cache, not prompt_cache"):
            engine.audit(PROMPT, prompt_cache=caches)


def test_another_way_to_generate_is_refused() -> None:
    class Backwards:
        name = "backwards"

        def generate(self, request: Any) -> Any:
            raise AssertionError(request)

    with pytest.raises(InputError, match="'backwards' does not generate token by token"):
        audited(Guest(method=Backwards()))


def test_a_foreign_sampler_gives_no_margins() -> None:
    found = audited(source(0.7), sampler=lambda logprobs: mx.argmax(logprobs, axis=-1))
    assert found.identical
    assert {each.margin for each in found.proposed} == {None}


# --- as JSON -----------------------------------------------------------------------


def test_the_findings_are_json_without_infinite_numbers() -> None:
    def only_even(_tokens: mx.array, logits: mx.array) -> mx.array:
        return mx.where(mx.arange(64) == 4, logits, -mx.inf)

    truth = [*PROMPT, *[4] * 12, 5, *[4] * 20]
    found = audited(source(1.0, truth=truth), logits_processors=[only_even])
    decode = tiny_tokenizer().decode
    data = json.loads(json.dumps(found.as_dict(decode), allow_nan=False))
    assert data["identical"] is True
    assert data["difference"] is None
    assert len(data["proposed"]) == len(found.proposed)
    assert data["proposed"][0]["proposed"] == {"id": 4, "text": decode([4])}
    assert data["proposed"][0]["margin"] is None
    assert data["result"]["tokens"] == found.result.tokens
    lied = audited(source(0.5, policy=Policy.ASSERT)).as_dict(decode)
    assert lied["identical"] is False
    assert lied["difference"]["rounding"] is False
    assert lied["difference"]["token"]["id"] != lied["difference"]["model"]["id"]


# --- bit by bit ---------------------------------------------------------------------


def test_a_run_is_audited_bit_by_bit_while_others_have_their_turn() -> None:
    whole = audited(source(0.7))
    with engine_with(shared_model("llama"), source(0.7), trusted=["guest"]) as engine:
        pending = engine.audited(PROMPT, **OPTIONS)
        rows = RowScheduler(engine)
        rows.add(pending.run)
        while len(rows):
            rows.round()
        with pytest.raises(InputError, match="has not been audited"):
            _ = pending.found
        other = engine.generate(PROMPT[:5], **OPTIONS)
        said = [engine.generate(PROMPT[:5], **OPTIONS).tokens for _ in pending.steps()]
    assert said == [other.tokens] * len(said)
    assert len(said) > OPTIONS["max_tokens"]
    assert pending.found.proposed == whole.proposed
    assert pending.found.identical
    assert (pending.found.noise, pending.found.caches) == (0.0, 0.0)


def test_what_was_read_before_need_not_be_read_again() -> None:
    with engine_with(shared_model("llama")) as engine:
        read = engine.check(PROMPT, **OPTIONS)
        assert list(read.ids) == PROMPT
        assert engine.generate(read, **OPTIONS).tokens == engine.generate(PROMPT, **OPTIONS).tokens
        mx.random.seed(7)
        drawn = mx.random.uniform().item()
        mx.random.seed(7)
        engine.check(PROMPT, temperature=1.0)  # may be in another thread: it draws nothing
        assert mx.random.uniform().item() == drawn
        with pytest.raises(InputError, match="schema needs a plugin"):
            engine.check(read, schema={"type": "object"}, **OPTIONS)
