"""Cases 10 to 12, 15 and 30: what a token depends on.

Conditions under which other systems of this kind went wrong; the numbers are those of the
project's list of cases.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import pytest
from attrs import define, field
from mlx_lm.models.cache import make_prompt_cache

from mlxfill import Policy, Proposal
from mlxfill_testing import (
    VOCAB,
    Guest,
    Script,
    ScriptedDrafter,
    ScriptedSource,
    engine_with,
    perturbed,
    plain,
    plugged,
    shared_model,
    tiny_model,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


PROMPT = [7, 30, 9, 30, 11, 4]
each_accuracy = pytest.mark.parametrize(
    "accuracy", [0.0, 0.7, 1.0], ids=["wrong", "sometimes", "right"]
)


@define
class Recorder:
    """A processor that writes down what it is shown and changes it so that history matters."""

    seen: dict[int, tuple[tuple[int, ...], bytes]] = field(factory=dict)
    calls: list[int] = field(factory=list)

    def __call__(self, tokens: mx.array, logits: mx.array) -> mx.array:
        ids: Any = tokens.tolist()
        self.calls.append(len(ids))
        self.seen[len(ids)] = (tuple(ids), bytes(memoryview(logits)))  # type: ignore[arg-type]
        shift = sum(ids) % 7
        return logits + 0.3 * mx.roll(logits, shift, 1)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@each_accuracy
@pytest.mark.parametrize("name", ["llama", "qwen3_5"])
def test_case_10_processors_see_the_emitted_history_and_no_drafts(
    name: str, accuracy: float, temperature: float
) -> None:
    """The same (tokens, logits) at each emitted position as in plain decoding, prompt included."""
    model = shared_model(name)
    first = Recorder()
    options: dict[str, Any] = {"temperature": temperature, "seed": 5}
    expected = plain(model, PROMPT, 20, logits_processors=[first], **options)
    truth = [*PROMPT, *expected.tokens]
    for guest in (Guest.drafting(truth, accuracy), Guest.offering(truth, accuracy, chance=0.7)):
        recorder = Recorder()
        result = plugged(model, guest, PROMPT, 20, logits_processors=[recorder], **options)
        assert result.tokens == expected.tokens
        for at in range(20):
            position = len(PROMPT) + at
            assert recorder.seen[position] == first.seen[position]
            assert recorder.seen[position][0] == tuple(truth[:position])
        assert all(a < b for a, b in pairwise(recorder.calls))


@each_accuracy
def test_case_10_penalties_and_a_ban_of_prompt_tokens(accuracy: float) -> None:
    """Repetition penalty 1.5 over 20 tokens; a processor that forbids every token of the prompt."""
    model = shared_model("llama")

    def ban(tokens: mx.array, logits: mx.array) -> mx.array:
        logits[:, tokens[: len(PROMPT)]] = -mx.inf
        return logits

    both: list[dict[str, Any]] = [{"repetition_penalty": 1.5}, {"logits_processors": [ban]}]
    for options in both:
        expected = plain(model, PROMPT, 30, **options)
        truth = [*PROMPT, *expected.tokens]
        for guest in (Guest.drafting(truth, accuracy), Guest.offering(truth, accuracy)):
            result = plugged(model, guest, PROMPT, 30, **options)
            assert result.tokens == expected.tokens
    assert not set(PROMPT) & set(expected.tokens)


class Twin:
    """A drafter that runs a model of its own and draws with the keys it is handed."""

    id, weights_bytes, default_depth = "twin", 0, 4
    supports_target_adapters = supports_external_tokens = True

    def __init__(self, model: Any) -> None:
        self.model = model

    def open(self, target: Any, samplings: Any, checkpoints: Any) -> TwinRows:  # noqa: ARG002
        return TwinRows(self.model, samplings[0])

    def kind(self, origin: str) -> Any:
        return ScriptedDrafter.kind(self, origin)  # type: ignore[arg-type]

    def close(self) -> None: ...


class TwinRows:
    """Forgets its cache and reads the whole session anew each round: slow and simple."""

    namespace, aux_layers, prefill_mode, row_count = "twin", (), "tail-split", 1

    def __init__(self, model: Any, sampling: Any) -> None:
        self.model, self.sampling = model, sampling
        self.known: list[int] = []
        self.pending = 0

    def prefill(self, tokens: mx.array, context: Any = None) -> None:
        self.consume(tokens, [tokens.shape[1]], context)

    def consume(self, tokens: mx.array, lengths: Sequence[int], context: Any = None) -> None:
        assert context is None
        ids: Any = tokens.tolist()
        self.known += ids[0][: lengths[0]]

    def draft(self, pending: Sequence[int], depth: int, positions: Sequence[int]) -> mx.array:
        (self.pending,) = pending
        cache = make_prompt_cache(self.model)
        logits = self.model(mx.array([[*self.known, self.pending]]), cache=cache)[:, -1]
        drawn = []
        for i in range(depth):
            drawn.append(self.sampling.draw(logits, [positions[0] + i]))
            logits = self.model(drawn[-1][None], cache=cache)[:, -1]
        return mx.concatenate(drawn)[None]

    def commit(self, accepted: Sequence[Sequence[int]], context: Any = None) -> None:
        assert context is None
        self.known += [self.pending, *accepted[0][:-1]]

    def close(self) -> None: ...


def acceptance(model: Any, drafter: Any, temperature: float) -> float:
    """Share of drafts that are accepted; the output must be that of plain decoding."""
    options: dict[str, Any] = {"temperature": temperature, "top_p": 0.95, "seed": 21}
    expected = plain(model, PROMPT, 40, **options)
    twin: Any = Twin(drafter)
    result = plugged(model, Guest(drafter=twin), PROMPT, 40, **options)
    assert result.tokens == expected.tokens
    assert result.faults == []
    return float(result.stats.spec["accepted"] / result.stats.spec["drafted"])


@pytest.mark.parametrize("temperature", [0.3, 0.5, 0.8])
def test_case_11_a_twin_is_as_right_at_a_temperature_as_without(temperature: float) -> None:
    """The target as its own drafter: drafts use the key of the position that they predict."""
    model = shared_model("llama")
    greedy = acceptance(model, model, 0.0)
    assert greedy == 1.0
    assert acceptance(model, model, temperature) >= 0.9 * greedy


def test_case_11_a_twin_that_is_slightly_off_stays_lossless() -> None:
    model = shared_model("llama")
    other = perturbed(model, tiny_model("llama"), 0.05)
    greedy = acceptance(model, other, 0.0)
    assert 0.2 < greedy < 1.0
    assert acceptance(model, other, 0.6) >= 0.5 * greedy


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.2])
@each_accuracy
def test_case_12_a_seed_fixes_the_text_with_and_without_a_drafter(
    temperature: float, accuracy: float
) -> None:
    model = shared_model("qwen3_5")
    options: dict[str, Any] = {"temperature": temperature, "top_k": 30, "seed": 99}
    expected = plain(model, PROMPT, 24, **options)
    for guest in (
        Guest.drafting([*PROMPT, *expected.tokens], accuracy),
        Guest.drafting([*PROMPT, *expected.tokens], accuracy, on_device=True),
        Guest.offering([*PROMPT, *expected.tokens], accuracy),
    ):
        result = plugged(model, guest, PROMPT, 24, **options)
        assert result.tokens == expected.tokens
        assert result.stats.seed == 99


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16])
def test_case_15_forced_tokens_are_appended_as_ids(dtype: mx.Dtype) -> None:
    """A half-precision model that can never choose the forced ids: no logit is bent for them."""
    from mlx.utils import tree_map

    model = tiny_model("llama")
    model.update(tree_map(lambda w: w.astype(dtype), model.parameters()))
    forced = (50, 51, 52, 53, 54)

    def never(tokens: mx.array, logits: mx.array) -> mx.array:  # noqa: ARG001
        logits[:, 50:55] = -mx.inf
        return logits

    class Once(ScriptedSource):
        def propose(self, view: Any) -> Proposal | None:
            if view.length != len(PROMPT) + 3:
                return None
            return Proposal(forced, Policy.ASSERT, "forced")

        def resolved(self, proposal: Proposal, accepted: int) -> None:
            assert (proposal.ids, accepted) == (forced, 5)

    guest = Guest(sources=[lambda r: Once(request=r, script=Script(PROMPT, 1.0))])
    with engine_with(model, guest, trusted=["guest"]) as engine:
        result = engine.generate(
            PROMPT, max_tokens=14, eos_token_ids=(), logits_processors=[never], keep_cache=True
        )
    assert result.faults == []
    assert tuple(result.tokens[3:8]) == forced
    assert not set(result.tokens[:3] + result.tokens[8:]) & set(forced)
    assert result.origins[3:8] == ["forced"] * 5
    # What follows is what the model writes after those very ids.
    follow = plain(model, [*PROMPT, *result.tokens[:8]], 6, logits_processors=[never])
    assert result.tokens[8:] == follow.tokens


@pytest.mark.parametrize("on_device", [False, True])
def test_case_30_drafts_beyond_the_targets_vocabulary(on_device: bool) -> None:
    """A drafter whose vocabulary is larger than the target's proposes an id that is not there."""
    model = shared_model("llama")
    expected = plain(model, PROMPT, 12).tokens

    class Larger(Script):
        def guess(self, start: int, count: int) -> list[int]:
            return [*super().guess(start, count)[:-1], VOCAB + 3] if count else []

    script = Larger([*PROMPT, *expected], 1.0)
    guest = Guest(drafter=ScriptedDrafter(script=script, on_device=on_device))
    result = plugged(model, guest, PROMPT, 12)
    assert result.tokens == expected
    assert max(result.tokens) < VOCAB


def test_case_30_a_source_that_offers_ids_beyond_the_vocabulary() -> None:
    model = shared_model("llama")
    expected = plain(model, PROMPT, 12).tokens

    class Beyond(ScriptedSource):
        def propose(self, view: Any) -> Proposal:  # noqa: ARG002
            return Proposal((1, VOCAB), Policy.VERIFY, "beyond")

    guest = Guest(sources=[lambda r: Beyond(request=r, script=Script(PROMPT, 1.0))])
    result = plugged(model, guest, PROMPT, 12)
    assert result.tokens == expected
    (fault,) = result.faults
    assert f"id {VOCAB} is outside the vocabulary of {VOCAB}" in fault.message
