"""A generation that is stored and gone on with elsewhere says what it would have said."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import pytest
from attrs import frozen
from mlx_lm.models.cache import make_prompt_cache

import mlxfill
from mlxfill import Checkpoint, CheckpointError, InputError, Policy
from mlxfill_testing import (
    ARCHITECTURES,
    Guest,
    engine_with,
    plain,
    shared_model,
    tiny_model,
    tiny_tokenizer,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

PROMPT = [7, 30, 9, 30, 11, 4] * 3
COUNT = 40
OPTIONS: dict[str, Any] = {"max_tokens": COUNT, "eos_token_ids": ()}


def stored(model: Any, *guests: Guest, every: int = 16, **options: Any) -> list[Checkpoint]:
    """The checkpoints that a request leaves on its way."""
    left: list[Checkpoint] = []
    trusted = options.pop("trusted", ())
    with engine_with(model, *guests, trusted=trusted) as engine:
        given = {**OPTIONS, **options}
        engine.generate(PROMPT, on_checkpoint=left.append, checkpoint_every=every, **given)
    return left


def resumed(model: Any, source: Any, *guests: Guest, **options: Any) -> mlxfill.Result:
    """What an engine of its own makes of a checkpoint."""
    trusted = options.pop("trusted", ())
    with engine_with(model, *guests, trusted=trusted) as engine:
        return engine.resume(source, **options).result()


def test_a_reply_without_tokens_is_told_to_no_source() -> None:
    class Newest:
        newest = 0

        def propose(self, view: mlxfill.TokenView) -> None: ...

        def observe(self, ids: Sequence[int]) -> None:
            self.newest = ids[-1]

        def resolved(self, proposal: mlxfill.Proposal, accepted: int) -> None: ...

    model = shared_model("llama")
    (empty,) = stored(model, max_tokens=0)
    result = resumed(model, empty, Guest(sources=[lambda _: Newest()]))
    assert (result.tokens, result.faults) == ([], [])


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_architecture_goes_on_from_a_file(
    name: str, temperature: float, tmp_path: Path
) -> None:
    model, file = shared_model(name), tmp_path / "reply"
    sampling: dict[str, Any] = {"temperature": temperature, "seed": 3}
    expected = plain(model, PROMPT, COUNT, **sampling)
    middle = stored(model, **sampling)[0]
    middle.save(file)
    result = resumed(model, file, checkpoint=None)
    assert 0 < middle.generated < COUNT
    assert result.tokens == expected.tokens
    assert (result.text, result.origins) == (expected.text, expected.origins)
    assert result.finish_reason == "length"
    assert result.stats.seed == 3
    assert result.stats.target_forwards == expected.stats.target_forwards
    assert result.stats.cache_tokens == expected.stats.cache_tokens


@pytest.mark.parametrize(
    "options",
    [
        {"kv_bits": 8, "kv_group_size": 32, "quantized_kv_start": 0},
        {"kv_bits": 4, "kv_group_size": 32, "quantized_kv_start": 30},
        {"max_kv_size": 24},
        {"repetition_penalty": 1.5, "logit_bias": {5: 2.0, 6: float("-inf")}},
        {"temperature": 0.9, "xtc_probability": 0.5, "xtc_threshold": 0.05, "seed": 1},
        {"logprobs": True, "top_logprobs": 3},
    ],
    ids=["quantized", "quantized-on-the-way", "rotating", "penalties", "xtc", "logprobs"],
)
def test_options_are_as_they_were(options: dict[str, Any]) -> None:
    model = shared_model("llama", head_dim=32)
    expected = plain(model, PROMPT, COUNT, **options)
    for checkpoint in stored(model, every=9, **options):
        result = resumed(model, checkpoint)
        assert result.tokens == expected.tokens
        assert result.logprobs == expected.logprobs
        assert result.top_logprobs == expected.top_logprobs


def test_a_seed_that_was_chosen_is_kept() -> None:
    model = shared_model("qwen3_5")
    left: list[Checkpoint] = []
    with engine_with(model) as engine:
        whole = engine.generate(
            PROMPT, temperature=1.0, on_checkpoint=left.append, checkpoint_every=10, **OPTIONS
        )
    for checkpoint in left:
        result = resumed(model, checkpoint)
        assert (result.tokens, result.stats.seed) == (whole.tokens, whole.stats.seed)


def test_stop_strings_and_eos_end_where_they_would_have_ended() -> None:
    model = shared_model("llama")
    whole = plain(model, PROMPT, COUNT)
    stop = tiny_tokenizer().decode(whole.tokens[25:29])
    for options in ({"stop": [stop]}, {"eos_token_ids": (whole.tokens[30],)}):
        expected = plain(model, PROMPT, COUNT, **options)
        result = resumed(model, stored(model, every=6, **options)[0])
        assert (result.text, result.tokens) == (expected.text, expected.tokens)
        assert result.finish_reason == "stop"


def test_unnamed_tokens_of_a_prompt_cache_are_counted() -> None:
    model = shared_model("llama")
    caches = make_prompt_cache(model)
    mx.eval(model(mx.array([[3, 1, 4, 1, 5]]), cache=caches))
    left: list[Checkpoint] = []
    with engine_with(model) as engine:
        expected = engine.generate(
            PROMPT, prompt_cache=caches, on_checkpoint=left.append, checkpoint_every=7, **OPTIONS
        )
    assert [resumed(model, each).tokens for each in left] == [expected.tokens] * len(left)
    with pytest.raises(InputError, match="keep_cache needs to know all that the caches hold"):
        resumed(model, left[0], keep_cache=True)


# --- sources and drafters -------------------------------------------------------------------


def truth(model: Any, **options: Any) -> list[int]:
    """Prompt and plain continuation, and a little more."""
    return [*PROMPT, *plain(model, PROMPT, COUNT + 8, **options).tokens]


@pytest.mark.parametrize("name", ["llama", "qwen3_5", "gemma3_text"])
@pytest.mark.parametrize("accuracy", [0.0, 0.7])
def test_sources_are_told_what_was_said(name: str, accuracy: float) -> None:
    model = shared_model(name)
    known = truth(model)
    for checkpoint in stored(model, Guest.offering(known, accuracy), every=15):
        guest = Guest.offering(known, accuracy, seed=5)
        result = resumed(model, checkpoint, guest)
        assert result.tokens == known[len(PROMPT) : -8]
        assert result.faults == []
        assert guest.seated[0].seen == [*PROMPT, *result.tokens]


def test_asserted_spans_are_asserted_again() -> None:
    model = shared_model("llama")
    script = [*PROMPT, *([9, 8, 7, 6] * 15)]  # what the model itself would hardly say

    def guest() -> Guest:
        return Guest.offering(script, 1.0, policy=Policy.ASSERT, longest=3, chance=1.0)

    with engine_with(model, guest(), trusted=["guest"]) as engine:
        expected = engine.generate(PROMPT, **OPTIONS)
    assert expected.stats.fill["injected"] > 0
    left = stored(model, guest(), every=8, trusted=["guest"])
    for checkpoint in left:
        result = resumed(model, checkpoint, guest(), trusted=["guest"])
        assert sorted(set(result.origins)) == ["sampled", "scripted"]
        assert result.tokens[: checkpoint.generated] == expected.tokens[: checkpoint.generated]
    with pytest.raises(CheckpointError, match="plugin 'guest' decides tokens and was on"):
        resumed(model, left[0])


@frozen
class Words:
    words: frozenset[int] = frozenset()


class Choosy(Guest):
    """Has a set among its settings."""

    @mlxfill.hookimpl
    def mlxfill_settings(self) -> type:
        return Words


def test_a_set_among_settings_is_the_same_in_whatever_order_it_is_kept() -> None:
    model, left = shared_model("llama"), list[Checkpoint]()

    def engine(*words: int) -> mlxfill.Engine:
        guest = Choosy.offering(PROMPT, 0.0, policy=Policy.ASSERT)
        tables = {"plugins": {"guest": {"words": list(words)}}}
        return engine_with(model, guest, trusted=["guest"], config=tables)

    with engine(0, 8) as first:
        expected = first.generate(PROMPT, on_checkpoint=left.append, **OPTIONS).tokens
    with engine(8, 0) as same:
        assert same.resume(left[-1]).result().tokens == expected
    with engine(8) as other, pytest.raises(CheckpointError, match="was with other settings"):
        other.resume(left[-1])


@pytest.mark.parametrize("mode", ["tail-split", "full"])
@pytest.mark.parametrize("aux_states", [(), (0, 2)], ids=["alone", "aux_states"])
@pytest.mark.parametrize("accuracy", [0.0, 0.7, 1.0])
def test_a_drafter_goes_on_where_it_was(
    accuracy: float, aux_states: tuple[int, ...], mode: Any
) -> None:
    model = shared_model("qwen3_5")
    known = truth(model)

    def guest(seed: int = 0) -> Guest:
        return Guest.drafting(known, accuracy, seed=seed, aux_layers=aux_states, prefill_mode=mode)

    for checkpoint in stored(model, guest(), every=15)[:-1]:
        again = guest(seed=9)
        result = resumed(model, checkpoint, again)
        assert result.tokens == known[len(PROMPT) : -8]
        assert result.faults == []
        assert again.drafter is not None
        (rows,) = again.drafter.opened
        assert rows.rounds
        held = [*PROMPT, *result.tokens][: len(rows.known)]
        assert rows.known == held
        assert len(rows.known) >= len(PROMPT) + checkpoint.generated - 1
        if aux_states:
            assert sum(each.shape[1] for each in rows.aux_states) == len(rows.known)


def test_a_drafter_that_is_mounted_later_or_no_more_changes_nothing() -> None:
    model = shared_model("llama")
    known = truth(model)
    expected = known[len(PROMPT) : -8]
    for checkpoint in stored(model, every=10)[:-1]:
        guest = Guest.drafting(known, 0.7)
        result = resumed(model, checkpoint, guest)
        assert result.tokens == expected
        assert result.faults == []
        assert guest.drafter is not None
        assert guest.drafter.opened[0].known[: len(PROMPT)] == PROMPT
    for checkpoint in stored(model, Guest.drafting(known, 0.7, aux_layers=(1,)), every=10):
        assert resumed(model, checkpoint).tokens == expected
    complete = stored(model)[-1]
    told: list[Checkpoint] = []
    idle = Guest.drafting(known, 0.7, aux_layers=(1,))
    result = resumed(model, complete, idle, on_checkpoint=told.append)
    assert (result.tokens, result.faults, told) == (expected, [], [])
    late = Guest.drafting(known, 0.7, aux_layers=(1,))
    result = resumed(model, stored(model)[0], late)
    assert result.tokens == expected
    assert "holds no states" in result.faults[0].message


# --- when they are taken --------------------------------------------------------------------


def test_they_come_every_so_many_tokens_and_at_the_end() -> None:
    model = shared_model("llama")
    # Plain decoding is one token ahead when it is told to pause.
    assert [c.generated for c in stored(model, every=10)] == [11, 21, 31, 40]
    assert [c.finished for c in stored(model, every=25)] == [False, True]
    assert [c.generated for c in stored(model, every=0)] == [COUNT]


def test_one_can_be_asked_for() -> None:
    model = shared_model("llama")
    left: list[Checkpoint] = []
    with engine_with(model) as engine:
        run = engine.stream(PROMPT, on_checkpoint=left.append, checkpoint_every=0, **OPTIONS)
        for piece, _ in zip(run, range(5), strict=False):
            assert piece.token is not None
        run.request_checkpoint()
        whole = run.result()
        with pytest.raises(InputError, match="checkpoint=FILE"):
            engine.stream(PROMPT).request_checkpoint()
    early = left[0]
    assert 5 <= early.generated <= 7
    assert resumed(model, early).tokens == whole.tokens


def test_a_cancelled_run_can_be_gone_on_with(tmp_path: Path) -> None:
    model, file, cancel = shared_model("qwen3_5"), tmp_path / "reply", threading.Event()
    expected = plain(model, PROMPT, COUNT, temperature=0.8, seed=2)
    with engine_with(model) as engine:
        run = engine.stream(
            PROMPT, checkpoint=file, cancel=cancel, temperature=0.8, seed=2, **OPTIONS
        )
        for piece, _ in zip(run, range(10), strict=False):
            assert piece.finish_reason is None
        cancel.set()
        partial = run.result()
    assert partial.finish_reason == "cancelled"
    assert 10 <= len(partial.tokens) < COUNT
    assert resumed(model, file).tokens == expected.tokens


@pytest.mark.parametrize("in_rows", [False, True])
def test_a_run_that_fails_can_be_gone_on_with(tmp_path: Path, *, in_rows: bool) -> None:
    def bad(tokens: Any, logits: Any) -> Any:
        if tokens.shape[0] > len(PROMPT) + 12:
            raise RuntimeError("planted")
        return logits

    model, file = shared_model("llama"), tmp_path / "reply"
    with engine_with(model) as engine:
        run = engine.stream(
            PROMPT, checkpoint=file, checkpoint_every=8, logits_processors=[bad], **OPTIONS
        )
        rows = mlxfill.RowScheduler(engine)
        if in_rows:
            rows.add(run)
        while len(rows):
            rows.round()
        for _ in range(2):  # a second call has no reply to tell either
            with pytest.raises(RuntimeError, match="planted"):
                run.result()
    expected = plain(model, PROMPT, COUNT)
    again = resumed(model, file, logits_processors=[lambda _, logits: logits])
    assert again.tokens == expected.tokens


def test_a_callback_that_raises_at_the_end_keeps_nothing_open() -> None:
    def bad(checkpoint: Checkpoint) -> None:
        if checkpoint.finished:
            raise RuntimeError("planted")

    model = shared_model("llama")
    guest = Guest.drafting([*PROMPT, *plain(model, PROMPT, COUNT).tokens], 1.0)
    with engine_with(model, guest) as engine:
        run = engine.stream(PROMPT, on_checkpoint=bad, **OPTIONS)
        with pytest.raises(RuntimeError, match="planted"):
            run.result()
        assert guest.events[-1].kind == "finish"


def test_a_finished_one_says_it_all_again_and_may_be_made_longer(tmp_path: Path) -> None:
    model, file = shared_model("llama"), tmp_path / "reply"
    longer = plain(model, PROMPT, COUNT + 20)
    with engine_with(model) as engine:
        whole = engine.generate(PROMPT, checkpoint=file, **OPTIONS)
    again = resumed(model, file)
    assert (again.tokens, again.text, again.finish_reason) == (whole.tokens, whole.text, "length")
    assert again.stats.target_forwards == whole.stats.target_forwards
    assert resumed(model, file, max_tokens=COUNT + 20).tokens == longer.tokens
    with pytest.raises(InputError, match="max_tokens must be at least"):
        resumed(model, file, max_tokens=3)
    for wrong in ("20", None, 2.5):
        with pytest.raises(InputError, match=f"a whole number of at least -1, not {wrong!r}"):
            resumed(model, file, max_tokens=wrong)


def test_a_resumed_run_goes_on_saving(tmp_path: Path) -> None:
    model, file = shared_model("llama"), tmp_path / "reply"
    stored(model, every=8)[0].save(file)
    with engine_with(model) as engine:
        run = engine.resume(file)
        for piece, _ in zip(run, range(30), strict=False):
            assert piece.finish_reason is None
        run.close()
    # Another one was due at 25: it is left out where the disk is not done with this one by then.
    assert Checkpoint.load(file).generated in {17, 25}
    assert sorted(tmp_path.iterdir()) == [file]


# --- what is refused ------------------------------------------------------------------------


def test_checkpoints_of_all_runs_are_written_by_one_thread(tmp_path: Path) -> None:
    """mlx never gives back what it keeps for a thread that used it."""
    writers = set[int | None]()
    with engine_with(shared_model("llama")) as engine:
        for number in range(3):
            file = tmp_path / f"{number}.ckpt"
            engine.generate(PROMPT, checkpoint=file, checkpoint_every=2, **OPTIONS)
            alive = [t for t in threading.enumerate() if t.name.startswith("mlxfill checkpoint")]
            writers |= {thread.ident for thread in alive}
            assert Checkpoint.load(file).finished
    assert len(writers) == 1


def test_what_a_file_cannot_hold_must_be_given_again() -> None:
    model = shared_model("llama")

    def ban(tokens: mx.array, logits: mx.array) -> mx.array:  # noqa: ARG001
        return mx.where(mx.arange(logits.shape[-1]) % 2 == 0, -mx.inf, logits)

    left = stored(model, every=10, logits_processors=[ban])
    with pytest.raises(CheckpointError, match=r"logits_processors=\.\.\.: give the same again"):
        resumed(model, left[0])
    expected = plain(model, PROMPT, COUNT, logits_processors=[ban])
    assert resumed(model, left[0], logits_processors=[ban]).tokens == expected.tokens
    with pytest.raises(InputError, match="temperature is as the checkpoint says"):
        resumed(model, left[0], temperature=1.0)


@pytest.mark.parametrize("odd", [{1, 2}, object(), {(1, 2): 3}])
def test_a_request_that_no_file_can_hold_is_refused_before_it_is_answered(
    odd: object, tmp_path: Path
) -> None:
    with engine_with(shared_model("llama")) as engine:
        with pytest.raises(CheckpointError, match=r"cannot hold the .* at template_options"):
            engine.stream(PROMPT, checkpoint=tmp_path / "reply", template_options={"odd": odd})
        assert list(tmp_path.iterdir()) == []
        assert len(engine.generate(PROMPT, **OPTIONS).tokens) == COUNT


def test_a_set_of_sources_is_kept() -> None:
    model, guest = shared_model("llama"), Guest(sources=[])
    left = stored(model, guest, sources={guest.name})
    assert resumed(model, left[0], guest).tokens == plain(model, PROMPT, COUNT).tokens


def test_other_weights_are_refused_by_name() -> None:
    checkpoint = stored(shared_model("llama"))[0]
    for other in (tiny_model("llama", seed=1), shared_model("qwen3_5")):
        with pytest.raises(CheckpointError, match="it is of another model"):
            resumed(other, checkpoint)


def test_options_are_checked() -> None:
    with engine_with(shared_model("llama")) as engine:
        wrongs: list[dict[str, Any]] = [
            {"checkpoint_every": -1},
            {"checkpoint": 3},
            {"on_checkpoint": 3},
        ]
        for wrong in wrongs:
            with pytest.raises(InputError, match=next(iter(wrong))):
                engine.stream(PROMPT, **wrong)


def test_the_content_is_json(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "the thing"}]
    left: list[Checkpoint] = []
    with engine_with(shared_model("llama")) as engine:
        whole = engine.generate(
            messages, max_tokens=9, on_checkpoint=left.append, checkpoint_every=4
        )
        assert json.loads(json.dumps(left[0].content)) == json.loads(json.dumps(left[0].content))
        left[0].save(tmp_path / "reply")
        run = engine.resume(tmp_path / "reply")
        assert run.request.messages == tuple(messages)
        assert run.result().tokens == whole.tokens
