"""Cases 1 to 5, 13 and 14: caches of every kind, taken back.

Conditions under which other systems of this kind went wrong; the numbers are those of the
project's list of cases.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx
import pytest
from mlx_lm.models.cache import QuantizedKVCache, make_prompt_cache

from diaries import diary_model
from mlxfill import DrafterError, Policy, PromptCache, Proposal
from mlxfill_testing import (
    VOCAB,
    Guest,
    Script,
    ScriptedDrafter,
    ScriptedSource,
    differences,
    engine_with,
    plain,
    plugged,
    reference_tokens,
    shared_model,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


PROMPT = [7, 30, 9, 30, 11, 4]
each_accuracy = pytest.mark.parametrize(
    "accuracy", [0.0, 0.7, 1.0], ids=["wrong", "sometimes", "right"]
)
HYBRIDS = [
    "qwen3_5",
    "qwen3_next",
    "lfm2",
    "mamba2",
    "nemotron_h",
    "falcon_h1",
    "recurrent_gemma",
]


def kept(result: Any) -> Any:
    """The caches that a request left, with the ids that they are said to hold."""
    return result.cache


def truthful(model: Any, held: Sequence[int], caches: list[Any]) -> None:
    """The caches hold exactly these tokens: every array is that of a fresh prefill."""
    fresh = make_prompt_cache(model)
    logits = model(mx.array([list(held)]), cache=fresh)
    mx.eval(logits, [entry.state for entry in fresh])
    assert differences(caches, fresh) == []
    after = mx.array([[5]])
    assert mx.array_equal(model(after, cache=caches), model(after, cache=fresh))


@pytest.mark.parametrize("name", HYBRIDS)
def test_case_01_a_hybrid_target_takes_any_drafter(name: str) -> None:
    """A target with recurrent states is given a drafter: the very first request works."""
    model = shared_model(name)
    expected = plain(model, PROMPT, 12).tokens
    guest = Guest.drafting([*PROMPT, *expected], 0.8, aux_layers=(0,))
    result = plugged(model, guest, PROMPT, 12)
    assert result.tokens == expected
    assert result.stats.spec["windows"] > 0
    assert result.faults == []


def test_case_01_a_target_that_cannot_go_back_is_refused_when_the_drafter_is_mounted() -> None:
    """An entry that holds more than arrays has no way back: said by name, the model given back."""
    model = diary_model()
    before = [type(module) for _, module in model.named_modules()]
    with pytest.raises(DrafterError, match=r"cannot use a drafter.*Diary"):
        engine_with(model, Guest.drafting(PROMPT, 1.0))
    assert [type(module) for _, module in model.named_modules()] == before


@pytest.mark.parametrize("name", HYBRIDS)
def test_case_02_a_drafter_that_is_always_wrong(name: str) -> None:
    """Every round is refused whole; over 40 tokens nothing of it may stay in a state."""
    model = shared_model(name)
    expected = reference_tokens(model, PROMPT, 40)
    result = plugged(model, Guest.drafting([*PROMPT, *expected], 0.0), PROMPT, 40)
    assert result.tokens == expected
    assert result.stats.spec["accepted"] == 0
    assert result.stats.spec["drafted"] > 40


@each_accuracy
@pytest.mark.parametrize("window", [16, 24, 48])
@pytest.mark.parametrize("name", ["gemma3_text", "recurrent_gemma"])
def test_case_03_a_ring_wraps_while_drafts_are_judged(
    name: str, window: int, accuracy: float
) -> None:
    """A sliding window of 16, 24, 48 and a prompt of 12: the wrap comes in the middle of rounds."""
    key = "attention_window_size" if name == "recurrent_gemma" else "sliding_window"
    model = shared_model(name, **{key: window})
    prompt = [*PROMPT, *PROMPT]
    expected = reference_tokens(model, prompt, 60)
    guest = Guest.drafting([*prompt, *expected], accuracy, default_depth=6)
    result = plugged(model, guest, prompt, 60)
    assert result.tokens == expected
    assert result.stats.spec["windows"] > 5


@each_accuracy
@pytest.mark.parametrize("size", [8, 16, 24])
def test_case_03_a_full_ring_with_kept_beginning_judges_no_more_windows(
    size: int, accuracy: float
) -> None:
    """``max_kv_size`` keeps the first tokens for ever, which a window's mask cannot express."""
    model = shared_model("qwen2")
    expected = reference_tokens(model, PROMPT, 50, max_kv_size=size)
    for make in (Guest.drafting, Guest.offering):
        guest = make([*PROMPT, *expected], accuracy)
        result = plugged(model, guest, PROMPT, 50, max_kv_size=size, keep_cache=True)
        assert result.tokens == expected
        held = len(PROMPT) - 1
        for emitted in result.stats.rounds:
            assert emitted <= max(1, size - held)
            held += emitted


@pytest.mark.parametrize("right", [1, 2, 3])
@pytest.mark.parametrize("name", ["qwen3_5", "qwen3_next", "lfm2", "mamba", "rwkv7"])
def test_case_04_some_drafts_are_right_and_the_rest_wrong(name: str, right: int) -> None:
    """Exactly ``right`` of 4 drafts are accepted: every state is that of a fresh prefill."""
    model = shared_model(name)
    expected = plain(model, PROMPT, 20).tokens
    truth = [*PROMPT, *expected]

    class Partly(Script):
        def guess(self, start: int, count: int) -> list[int]:  # noqa: ARG002 - always 4
            ids = [*self.truth[start : start + 4], 0, 0, 0, 0][:4]
            return [t if i < right else (t + 1) % VOCAB for i, t in enumerate(ids)]

    script = Partly(truth, 1.0)
    guest = Guest(drafter=ScriptedDrafter(script=script, default_depth=4))
    result = plugged(model, guest, PROMPT, 16, keep_cache=True)
    assert result.tokens == expected[:16]
    assert set(result.stats.rounds[1:-1]) == {right + 1}
    truthful(model, kept(result).tokens, kept(result).caches)


@pytest.mark.parametrize("name", ["llama", "qwen3_5", "gemma3_text", "mamba2"])
def test_case_05_rounds_and_plain_steps_alternate(name: str) -> None:
    """A window, a plain step, a window that is refused, a plain step, ..."""
    model = shared_model(name)
    expected = reference_tokens(model, PROMPT, 40)
    truth = [*PROMPT, *expected]

    class Alternating(ScriptedSource):
        def propose(self, view: Any) -> Proposal | None:
            if view.length % 5 < 2:
                return None
            ids = self.script.guess(view.length, 3)
            wrong = [(t + 1) % VOCAB for t in ids]
            chosen = ids if view.length % 3 else [ids[0], *wrong[1:]]
            return Proposal(tuple(chosen), Policy.VERIFY, "turns")

        def resolved(self, proposal: Proposal, accepted: int) -> None: ...

    guest = Guest(sources=[lambda r: Alternating(request=r, script=Script(truth, 1.0))])
    result = plugged(model, guest, PROMPT, 40)
    assert result.tokens == expected
    assert result.stats.spec["rejected"] > 0
    assert 1 in result.stats.rounds
    assert max(result.stats.rounds) > 2


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("start", [0, 9, 15, 40])
@each_accuracy
def test_case_13_keys_and_values_are_quantized_on_the_way(
    accuracy: float, start: int, bits: int
) -> None:
    """From the start, in mid-run, after drafts were refused: as plain, and still quantized."""
    model = shared_model("llama", num_attention_heads=2, num_key_value_heads=1, head_dim=32)
    kv: dict[str, Any] = {"kv_bits": bits, "kv_group_size": 32, "quantized_kv_start": start}
    expected = reference_tokens(model, PROMPT, 48, **kv)
    truth = [*PROMPT, *expected]
    for guest in (Guest(), Guest.drafting(truth, accuracy), Guest.offering(truth, accuracy)):
        result = plugged(model, guest, PROMPT, 48, keep_cache=True, **kv)
        assert result.tokens == expected
        assert all(isinstance(entry, QuantizedKVCache) for entry in kept(result).caches)
        assert {entry.bits for entry in kept(result).caches} == {bits}


@each_accuracy
@pytest.mark.parametrize("held", [1, 3, 5])
@pytest.mark.parametrize("name", ["llama", "qwen3_5"])
def test_case_14_a_cache_that_holds_only_the_targets_half(
    name: str, held: int, accuracy: float
) -> None:
    """A prewarmed cache says nothing to a drafter: it is told the tokens and catches up."""
    model = shared_model(name)
    expected = plain(model, PROMPT, 16).tokens
    caches = make_prompt_cache(model)
    mx.eval(model(mx.array([PROMPT[:held]]), cache=caches))
    warm = PromptCache(PROMPT[:held], caches)
    guest = Guest.drafting([*PROMPT, *expected], accuracy)
    result = plugged(model, guest, PROMPT, 16, cache=warm)
    assert result.tokens == expected
    assert result.stats.cached_tokens == held
    assert result.faults == []
    assert guest.drafter is not None
    known = guest.drafter.opened[0].known
    assert known == [*PROMPT, *expected][: len(known)]


def test_case_14_a_drafter_that_needs_the_targets_states_sits_the_request_out() -> None:
    """States of cached tokens are gone; the reason is named and the text is right."""
    model = shared_model("llama")
    expected = plain(model, PROMPT, 12).tokens
    caches = make_prompt_cache(model)
    mx.eval(model(mx.array([PROMPT[:3]]), cache=caches))
    guest = Guest.drafting([*PROMPT, *expected], 1.0, aux_layers=(0,))
    with engine_with(model, guest) as engine:
        result = engine.generate(
            PROMPT, max_tokens=12, eos_token_ids=(), cache=PromptCache(PROMPT[:3], caches)
        )
        assert result.tokens == expected
        (fault,) = result.faults
        assert "prewarmed cache holds no states" in fault.message
        again = engine.generate(PROMPT, max_tokens=12, eos_token_ids=())
    assert again.tokens == expected
    assert again.stats.spec["accepted"] > 0
    assert again.faults == []
