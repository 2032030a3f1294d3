"""Rows: whatever shares a forward with a request, it says what it would say alone."""

from __future__ import annotations

import itertools
import random
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxfill import InputError, Policy, RowScheduler
from mlxfill.model import hooks
from mlxfill_testing import (
    ARCHITECTURES,
    EOS,
    ROUNDED,
    VOCAB,
    Guest,
    Script,
    ScriptedDrafter,
    ScriptedRows,
    ScriptedSource,
    contents,
    engine_with,
    plain,
    shared_model,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mlxfill import Engine, Request
    from mlxfill.engine import Result

LONGEST = 14
PROMPTS = (
    (7, 30, 9, 30, 11, 4),
    (5,),
    (12, 3, 12, 3, 12, 3, 12, 3, 12, 3, 12),
    (40, 41, 42),
    tuple(range(1, 30)),
)
SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"temperature": 0.8, "seed": 3},
    {"temperature": 1.2, "seed": 3, "top_k": 20, "top_p": 0.9},
    {"repetition_penalty": 1.4, "logprobs": True},
    {"temperature": 0.7, "seed": 9, "presence_penalty": 0.6, "top_logprobs": 3},
    {"eos_token_ids": tuple(range(0, VOCAB, 7))},
    {"append_chunk": 3, "logprobs": True},
)
TOGETHER = ("llama", "gemma3_text", "qwen3_5", "falcon_h1", "mamba2", "deepseek_v3")
TURNS = ("gemma2", "llama4")
EXACT = [name for name in ARCHITECTURES if name not in ROUNDED]


@cache
def alone(name: str, prompt: int, setting: int, count: int = LONGEST) -> Result:
    return plain(shared_model(name), PROMPTS[prompt], count, **SETTINGS[setting])


class Book:
    """A guest's sources for every request of these tests: right as often as ``accuracy`` says."""

    def __init__(self, name: str, accuracy: float, policy: Policy) -> None:
        self.name, self.accuracy, self.policy = name, accuracy, policy
        self.setting: dict[tuple[int, ...], int] = {}
        self.made: list[ScriptedSource] = []
        self.seed = 0

    def source(self, request: Request) -> ScriptedSource:
        prompt = PROMPTS.index(request.prompt_ids)
        settings_ = int(request.session or 0)
        # Plain decoding may have ended with an EOS: 0 is one wherever there are any, and what lies
        # behind it is never asserted.
        truth = [*request.prompt_ids, *alone(self.name, prompt, settings_).tokens, 0]
        self.seed += 1
        script = Script(truth, self.accuracy, self.seed)
        source = ScriptedSource(request=request, script=script, chance=0.6, policy=self.policy)
        self.made.append(source)
        return source


@cache
def engine_of(name: str, kind: str) -> tuple[Engine, Book]:
    """One engine a kind of company: it serves all examples, as a server's does."""
    accuracy, policy = {
        "plain": (0.0, Policy.VERIFY),
        "wrong": (0.0, Policy.VERIFY),
        "often": (0.7, Policy.VERIFY),
        "right": (1.0, Policy.VERIFY),
        "assert": (1.0, Policy.ASSERT),
        "drafter": (0.7, Policy.VERIFY),
        "aux_states": (0.7, Policy.VERIFY),
        "both": (0.7, Policy.VERIFY),
    }[kind]
    book = Book(name, accuracy, policy)
    guest = Guest(sources=[] if kind in {"plain", "drafter", "aux_states"} else [book.source])
    if kind in {"drafter", "aux_states", "both"}:
        truth = [*PROMPTS[0], *alone(name, 0, 0).tokens]
        guest.drafter = ScriptedDrafter(
            script=Script(truth, 0.7),
            on_device=kind == "aux_states",
            chance=0.8,
            aux_layers=(0, 1) if kind == "aux_states" else (),
            prefill_mode="full" if kind == "aux_states" else "tail-split",
        )
    return engine_with(shared_model(name), guest, trusted=["guest"]), book


def opened(engine: Engine, prompt: int, setting: int, count: int) -> Any:
    options = {"max_tokens": count, "eos_token_ids": (), **SETTINGS[setting]}
    return engine.stream(PROMPTS[prompt], session=str(setting), **options)


def checked(result: Result, expected: Result, count: int) -> None:
    """The same as alone, as far as ``count`` tokens go."""
    assert result.tokens == expected.tokens[:count]
    ends_early = len(expected.tokens) < min(count, LONGEST)
    assert result.finish_reason == ("stop" if ends_early else "length")
    assert result.faults == []
    if expected.logprobs:  # the order of additions depends on the company
        assert result.logprobs == pytest.approx(expected.logprobs[:count], abs=1e-4)
    assert sum(result.stats.rounds) == len(result.tokens) == result.stats.generated_tokens


REQUEST = st.tuples(
    st.integers(0, len(PROMPTS) - 1),
    st.integers(0, len(SETTINGS) - 1),
    st.integers(1, LONGEST),
    st.integers(0, 12),  # the round in which it arrives
)


@given(
    st.sampled_from(TOGETHER),
    st.sampled_from(
        ["plain", "wrong", "often", "right", "assert", "drafter", "aux_states", "both"]
    ),
    st.lists(REQUEST, min_size=1, max_size=8),
    st.integers(1, 8),
    st.sets(st.integers(0, 7), max_size=2),
)
def test_each_row_says_what_it_would_say_alone(
    name: str,
    kind: str,
    requests: list[tuple[int, int, int, int]],
    max_rows: int,
    dropped: set[int],
) -> None:
    engine, book = engine_of(name, kind)
    book.made.clear()
    rows = RowScheduler(engine, max_rows=max_rows)
    runs = [opened(engine, *request[:3]) for request in requests]
    arrivals = sorted(range(len(runs)), key=lambda i: requests[i][3])
    said: dict[int, list[int]] = {id(run): [] for run in runs}
    number = 0
    while arrivals or len(rows):
        while arrivals and requests[arrivals[0]][3] <= number:
            rows.add(runs[arrivals.pop(0)])
        for run, piece in rows.round():
            if piece.token is not None:
                said[id(run)].append(piece.token)
        number += 1
        for at in dropped & set(range(len(runs))):
            if len(said[id(runs[at])]) >= 3 and at not in arrivals:
                rows.drop(runs[at])
    for at, (run, (prompt, setting, count, _)) in enumerate(zip(runs, requests, strict=True)):
        expected = alone(name, prompt, setting)
        result = run.result()
        assert result.tokens == said[id(run)]
        if at in dropped and result.finish_reason == "cancelled":
            assert result.tokens == expected.tokens[: len(result.tokens)]
        else:
            checked(result, expected, count)
    for source in book.made:
        assert [outcome.proposal for outcome in source.outcomes] == source.offered


@pytest.mark.parametrize("name", EXACT)
def test_every_architecture_shares_forwards_or_takes_turns(name: str) -> None:
    engine, _ = engine_of(name, "often")
    requests = [(0, 0, 12), (2, 1, 14), (4, 3, 9), (1, 2, 14)]
    rows = RowScheduler(engine)
    runs = [opened(engine, *request) for request in requests]
    for run in runs:
        rows.add(run)
    while len(rows):
        rows.round()
    for run, (prompt, setting, count) in zip(runs, requests, strict=True):
        checked(run.result(), alone(name, prompt, setting), count)
    assert bool(engine.no_rows()) == (name in TURNS)


@pytest.fixture(params=[name for name in TOGETHER if name in EXACT])
def shared(request: pytest.FixtureRequest) -> tuple[str, Engine]:
    name = request.param
    return name, engine_of(name, "often")[0]


def test_a_row_takes_the_caches_of_a_fresh_prefill_along(shared: tuple[str, Engine]) -> None:
    name, engine = shared
    rows = RowScheduler(engine)
    runs = [
        engine.stream(PROMPTS[prompt], max_tokens=count, eos_token_ids=(), keep_cache=True)
        for prompt, count in ((0, 6), (4, 11), (2, 14))
    ]
    for run in runs:
        rows.add(run)
    while len(rows):
        rows.round()
    model = shared_model(name)
    for run in runs:
        kept = run.result().cache
        assert kept is not None
        # A new request goes on from it exactly as from a prompt of those tokens.
        tokens = [*kept.tokens, 3]
        expected = plain(model, tokens, 6)
        again = engine.generate(
            tokens, max_tokens=6, eos_token_ids=(), cache=kept, session="0", sources_policy="verify"
        )
        assert again.tokens == expected.tokens
        assert again.stats.cached_tokens == len(kept.tokens)


def test_forwards_are_shared() -> None:
    """Four rows of equal length need as many forwards as one of them."""
    model = shared_model("llama")
    with engine_with(model) as engine:
        calls = 0
        inner = engine.target.forward

        def counting(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            return inner(*args, **kwargs)

        engine.no_rows()
        engine.target.forward = counting  # type: ignore[method-assign]
        requests = [{"prompt": PROMPTS[0], "max_tokens": 40, "eos_token_ids": ()}] * 4
        results = engine.generate_batch(requests)
    assert len({tuple(result.tokens) for result in results}) == 1
    assert calls < 4 * 2 + 60  # alone they would need 4 * 41


def test_sequences_that_are_decoded_together_draft_together() -> None:
    """One call of a drafter a round, for all that draft: its rows are those of the others, too."""
    asked: list[int] = []

    class Counted(ScriptedRows):
        def draft(self, pending: Any, depth: int, positions: Any) -> Any:
            asked.append(sum(each is not None for each in pending))
            return super().draft(pending, depth, positions)

    class Provider(ScriptedDrafter):
        def open(self, target: Any, samplings: Any, checkpoints: Any) -> ScriptedRows:
            rows = Counted(self, target)
            rows.append(samplings, checkpoints)
            return rows

    truth = [*PROMPTS[0], *alone("llama", 0, 0).tokens]
    guest = Guest(drafter=Provider(script=Script(truth, 1.0)))
    with engine_with(shared_model("llama"), guest) as engine:
        scheduler = RowScheduler(engine)
        runs = [opened(engine, prompt, 0, LONGEST) for prompt in range(3)]
        for run in runs:
            scheduler.add(run)
        rounds = 0
        while len(scheduler):
            scheduler.round()
            rounds += 1
        for prompt, run in enumerate(runs):
            checked(run.result(), alone("llama", prompt, 0), LONGEST)
    assert max(asked) == len(runs)
    assert len(asked) <= rounds


def planted(when: Callable[..., bool]) -> Callable[..., Any]:
    """A processor or callback that raises when it is shown what ``when`` waits for."""

    def call(*shown: Any) -> Any:
        if when(*shown):
            raise RuntimeError("planted")
        return shown[-1]

    return call


RAISING: dict[str, dict[str, Any]] = {
    "processor": {"logits_processors": [planted(lambda tokens, _: tokens.shape[0] > 9)]},
    "first progress": {"on_prefill_progress": planted(lambda done, _: not done)},
    "last progress": {"on_prefill_progress": planted(lambda done, whole: done == whole)},
    "checkpoint": {"on_checkpoint": planted(lambda _: True), "checkpoint_every": 4},
    "last checkpoint": {"on_checkpoint": planted(lambda checkpoint: checkpoint.finished)},
}


@pytest.mark.parametrize("kind", RAISING)
def test_a_request_that_raises_ends_alone(kind: str) -> None:
    with engine_with(shared_model("llama")) as engine:
        rows = RowScheduler(engine)
        good = [opened(engine, 2, 0, 12), opened(engine, 0, 1, 12)]
        options = {"max_tokens": 12, "eos_token_ids": (), **RAISING[kind]}
        wrong = engine.stream(PROMPTS[0], **options)
        for run in (good[0], wrong, good[1]):
            rows.add(run)
        pieces = [(run, piece) for _ in range(60) if len(rows) for run, piece in rows.round()]
        assert [piece.finish_reason for run, piece in pieces if run is wrong][-1] == "error"
        with pytest.raises(RuntimeError, match="planted"):
            wrong.result()
        checked(good[0].result(), alone("llama", 2, 0), 12)
        checked(good[1].result(), alone("llama", 0, 1), 12)


def test_a_run_has_one_reader() -> None:
    with engine_with(shared_model("llama")) as engine:
        rows = RowScheduler(engine)
        first, second = opened(engine, 0, 0, 12), opened(engine, 2, 0, 12)
        next(first)
        rows.add(second)
        for run in (first, second):
            with pytest.raises(InputError, match="joins rows once"):
                rows.add(run)
        with pytest.raises(InputError, match=r"rows\.round\(\) brings its pieces"):
            second.result()
        while len(rows):
            rows.round()
        checked(first.result(), alone("llama", 0, 0), 12)
        checked(second.result(), alone("llama", 2, 0), 12)


def test_weights_are_wired_once_and_only_while_there_are_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wired: list[object] = []

    @contextmanager
    def limit(model: object, _: object) -> Iterator[None]:
        wired.append(model)
        yield
        wired.remove(model)

    monkeypatch.setattr("mlxfill.batch.scheduler.wired_limit", limit)
    with engine_with(shared_model("llama")) as engine:
        rows = RowScheduler(engine)
        for ends in ("dropped", "read", "dropped"):
            runs = [opened(engine, 0, 0, 3), opened(engine, 2, 0, 3)]
            for run in runs:
                rows.add(run)
            assert wired == [engine.model]
            rows.round()
            while ends == "read" and len(rows):
                rows.round()
            for run in runs:
                rows.drop(run)
            assert (len(rows), wired) == (0, [])


def test_every_forward_of_a_row_is_counted_as_something() -> None:
    engine, _ = engine_of("llama", "often")
    requests = [{"prompt": PROMPTS[at], "session": "0", "max_tokens": LONGEST} for at in (0, 2, 0)]
    for result in engine.generate_batch(requests):
        spec = result.stats.spec
        assert result.stats.target_forwards == 1 + spec["steps"] + spec["windows"]


class Interrupted:
    """A source during whose second call Ctrl-C is pressed."""

    def __init__(self, request: Request) -> None:
        self.left = 2 if request.prompt_ids == PROMPTS[4] * 3 else -1

    def propose(self, view: Any) -> None: ...

    def resolved(self, proposal: Any, accepted: int) -> None: ...

    def observe(self, ids: Any) -> None:  # noqa: ARG002 - as the contract has it
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt


def test_a_round_that_breaks_off_ends_all_runs_and_leaves_no_caches() -> None:
    """A token may have gone through the model that nobody has read."""
    prompts = [PROMPTS[4] * 3, tuple(reversed(PROMPTS[4] * 3))]
    with engine_with(shared_model("qwen3_5"), Guest(sources=[Interrupted])) as engine:
        rows = RowScheduler(engine)
        runs = [engine.stream(p, session="s", eos_token_ids=()) for p in prompts]
        for run in runs:
            rows.add(run)
        with pytest.raises(KeyboardInterrupt):
            [rows.round() for _ in range(60)]
        assert (len(rows), rows.round()) == (0, [])
        for run, prompt in zip(runs, prompts, strict=True):
            result = run.result()
            assert result.finish_reason == "cancelled"
            longer = [*prompt, *result.tokens, 5, 6]
            after = engine.generate(longer, session="s", max_tokens=8, eos_token_ids=())
            assert after.tokens == plain(shared_model("qwen3_5"), longer, 8).tokens
            assert after.stats.cached_tokens <= len(prompt)


def test_ctrl_c_within_a_forward_leaves_no_cache_that_is_another_than_it_says() -> None:
    calls = iter((True, True, False))

    def interrupted(_: Any, logits: Any) -> Any:
        if not next(calls):
            raise KeyboardInterrupt
        return logits

    with engine_with(shared_model("qwen3_5")) as engine:
        run = engine.stream(PROMPTS[0], keep_cache=True, logits_processors=[interrupted])
        with pytest.raises(KeyboardInterrupt):
            run.result()
        result = run.result()
    assert result.finish_reason == "cancelled"
    assert result.cache is not None
    assert (result.cache.tokens, result.cache.caches) == ((), [])
    assert result.stats.cache_tokens == ()


@pytest.mark.parametrize("at", range(4))
@pytest.mark.parametrize("what", ["aux_states", "asserts"])
def test_ctrl_c_while_a_module_is_hooked_or_left(
    what: str, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = shared_model("llama")
    expected = plain(model, PROMPTS[0], LONGEST).tokens
    truth = [*PROMPTS[0], *expected]
    guest = (
        Guest.drafting(truth, 0.5, aux_layers=(0,))
        if what == "aux_states"
        else Guest.offering(truth, 1.0, policy=Policy.ASSERT)
    )
    real, calls = hooks._set_class, itertools.count()

    def interrupted(module: Any, cls: type) -> None:
        if next(calls) == at:
            raise KeyboardInterrupt
        real(module, cls)

    with engine_with(model, guest, trusted=["guest"]) as engine:
        engine.prepare()
        with monkeypatch.context() as patch:
            patch.setattr(hooks, "_set_class", interrupted)
            with pytest.raises(KeyboardInterrupt):
                engine.generate(PROMPTS[0], max_tokens=LONGEST, eos_token_ids=())
        result = engine.generate(PROMPTS[0], max_tokens=LONGEST, eos_token_ids=())
    assert (result.tokens, result.faults) == (expected, [])


@pytest.mark.parametrize("what", ["on_prefill_progress", "logits_processors"])
def test_a_callback_may_end_its_own_run_and_those_beside_it(what: str) -> None:
    model, prompt = shared_model("qwen3_5"), [*PROMPTS[4] * 3, 5]
    expected = plain(model, prompt, LONGEST).tokens
    ends: list[Any] = []

    def ending(*shown: Any) -> Any:
        if isinstance(shown[0], int) or len(shown[0]) > len(prompt) + 2:
            for end in ends:
                end()
        return shown[-1]

    options: dict[str, Any] = {"max_tokens": LONGEST, "eos_token_ids": ()}
    calls: dict[str, Any] = {what: ending if what == "on_prefill_progress" else [ending]}
    with engine_with(model, Guest.offering([*prompt, *expected], 0.7)) as engine:
        run = engine.stream(prompt, **options, **calls)
        ends[:] = [run.close]
        alone = run.result()
        rows = RowScheduler(engine)
        runs = [engine.stream(prompt, **options, **calls)]
        runs += [engine.stream(prompt, **options) for _ in range(3)]
        for each in runs:
            rows.add(each)
        ends[:] = [lambda: rows.drop(runs[0]), lambda: rows.drop(runs[2])]
        while len(rows):
            rows.round()
        ends[:] = [rows.round]
        again = engine.stream(prompt, **options, **calls)
        rows.add(again)
        while len(rows):
            rows.round()
        with pytest.raises(InputError, match="a round is under way"):
            again.result()
        results = [alone, *(each.result() for each in runs)]
    reasons = [result.finish_reason for result in results]
    assert reasons == ["cancelled", "cancelled", "length", "cancelled", "length"]
    for result in results:
        assert result.tokens == expected[: len(result.tokens)]


def test_stop_strings_end_a_row_inside_a_burst() -> None:
    model = shared_model("llama")
    whole = plain(model, PROMPTS[0], LONGEST)
    stop = whole.text[8:11]
    expected = plain(model, PROMPTS[0], LONGEST, stop=stop)
    engine, _ = engine_of("llama", "right")
    options = {"max_tokens": LONGEST, "eos_token_ids": (), "stop": stop, "session": "0"}
    results = engine.generate_batch([{"prompt": PROMPTS[0], **options}] * 3)
    for result in results:
        assert (result.text, result.tokens) == (expected.text, expected.tokens)
        assert result.finish_reason == "stop"


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({}, ["request 1", "prompt or messages"]),
        ({"prompt": [1], "messages": []}, ["request 1", "prompt or messages"]),
        ({"prompt": []}, ["request 1", "empty"]),
        ({"prompt": [1], "max_token": 3}, ["request 1", "max_tokens"]),
        ("hello", ["request 1", "mapping"]),
    ],
)
def test_a_bad_request_is_named_before_anything_is_computed(
    request_: Any, words: list[str]
) -> None:
    pieces: list[Any] = []
    guest = Guest()
    with (
        engine_with(shared_model("llama"), guest) as engine,
        pytest.raises(InputError) as caught,
    ):
        engine.generate_batch(
            [{"prompt": [1, 2]}, request_], on_piece=lambda *piece: pieces.append(piece)
        )
    assert all(word in str(caught.value) for word in words)
    assert not pieces
    assert [event.kind for event in guest.events] == ["request", "finish"]


@pytest.mark.parametrize("value", [0, -1, 1.5, True])
def test_max_rows_is_checked(value: Any) -> None:
    with engine_with(shared_model("llama")) as engine, pytest.raises(InputError, match="max_rows"):
        RowScheduler(engine, max_rows=value)


@settings(max_examples=30)
@given(st.lists(REQUEST, min_size=2, max_size=4), st.integers(0, 1000))
def test_quantized_rows(requests: list[tuple[int, int, int, int]], seed: int) -> None:
    options = {"kv_bits": 8, "kv_group_size": 32, "max_tokens": 10, "eos_token_ids": ()}
    start = random.Random(seed).choice([0, 4, 12, 30])
    model = shared_model("llama", head_dim=32)
    guest = Guest.offering([*PROMPTS[0], *[1] * 40], 0.3, seed=seed)
    with engine_with(model, guest) as engine:
        asked = [
            {"prompt": PROMPTS[prompt], "quantized_kv_start": start, **options}
            for prompt, *_ in requests
        ]
        for each, result in zip(asked, engine.generate_batch(asked), strict=True):
            same = {name: value for name, value in each.items() if name != "prompt"}
            expected = plain(model, each["prompt"], 10, **same)
            assert result.tokens == expected.tokens
            assert (EOS in result.tokens) == (EOS in expected.tokens)
    assert contents is not None


@pytest.mark.parametrize("start", [0, 5, 28, 29, 33])
def test_rows_of_caches_that_are_quantized_by_the_first_forward(start: int) -> None:
    """The caller's caches hold all of the prompt but its last token, and are not quantized yet."""
    model, prompt = shared_model("llama", head_dim=32), PROMPTS[4]
    options = {"kv_bits": 4, "kv_group_size": 32, "max_tokens": 12, "eos_token_ids": ()}
    with engine_with(model) as engine:
        kept = engine.generate(prompt, max_tokens=1, eos_token_ids=(), keep_cache=True).cache
        asked: dict[str, Any] = {"prompt": prompt, "cache": kept, "quantized_kv_start": start}
        asked |= options
        one, other = engine.generate_batch([asked, asked])
        assert one.tokens == other.tokens == engine.generate(**asked).tokens
