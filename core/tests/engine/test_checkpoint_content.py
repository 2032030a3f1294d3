"""A checkpoint whose seal is right and whose content is not, and fields that somebody forgot."""

from __future__ import annotations

import copy
import itertools
import json
import time
from functools import cache
from typing import TYPE_CHECKING, Any

import attrs
import mlx.core as mx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlxfill import Checkpoint, CheckpointError, InputError, Sampling, Stats
from mlxfill.request.options import Options
from mlxfill.resume.capture import LIVE
from mlxfill_testing import Guest, engine_with, shared_model

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mlxfill import Engine, Result

PROMPT = [7, 30, 9, 30, 11, 4]
OPTIONS: dict[str, Any] = {"max_tokens": 12, "eos_token_ids": ()}
NAMES = ("llama", "qwen3_5", "gemma3_text")


@cache
def engine_of(name: str) -> Engine:
    """An engine that stays."""
    return engine_with(shared_model(name))


@cache
def left_by(name: str, scored: bool = False) -> tuple[Checkpoint, Result]:
    """A checkpoint in the middle of a greedy reply, and the whole reply."""
    left: list[Checkpoint] = []
    scores: dict[str, Any] = {"logprobs": True, "top_logprobs": 2} if scored else {}
    whole = engine_of(name).generate(
        PROMPT, on_checkpoint=left.append, checkpoint_every=6, **OPTIONS, **scores
    )
    return left[0], whole


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of everything in a tree of JSON."""
    inside = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [path, *itertools.chain.from_iterable(places(v, (*path, k)) for k, v in inside)]


def put(content: Any, path: tuple[Any, ...], value: Any) -> Any:
    """``content`` with another value at a path."""
    if not path:
        return value
    changed = copy.deepcopy(content)
    inside = changed
    for key in path[:-1]:
        inside = inside[key]
    inside[path[-1]] = value
    return changed


def as_json(checkpoint: Checkpoint) -> Any:
    return json.loads(json.dumps(checkpoint.content))


def outcome(name: str, content: Any, arrays: Any, folder: Path) -> Result | str:
    """What becomes of a file with this content: a result, or the one line about it."""
    file = folder / "reply"
    Checkpoint(content, arrays).save(file)
    before = file.read_bytes()
    try:
        return engine_of(name).resume(file, checkpoint=None).result()
    except (CheckpointError, InputError) as error:
        (line,) = str(error).splitlines()
        assert file.read_bytes() == before
        return line


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files")


FOREIGN: tuple[Any, ...] = (
    None,
    True,
    -1,
    10**12,
    1.5,
    float("nan"),
    "x",
    "",
    [],
    [[]],
    {},
    {"array": "x"},
    {"list": 1},
)


@given(data=st.data())
@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_field_that_is_changed_is_named_or_does_no_harm(
    data: st.DataObject, folder: Path
) -> None:
    name = data.draw(st.sampled_from(NAMES))
    checkpoint, whole = left_by(name, data.draw(st.booleans()))
    content = as_json(checkpoint)
    ends = [path for path in places(content) if path[-1:] != ("max_tokens",)]
    path = data.draw(st.sampled_from(ends))
    value = data.draw(st.sampled_from(FOREIGN))
    found = outcome(name, put(content, path, value), checkpoint.arrays, folder)
    if isinstance(found, str):
        assert found.startswith(str(folder))
        return
    assert found.finish_reason in {"length", "stop"}
    if not {"options", "sampling"} & {key for key in path if isinstance(key, str)}:
        assert found.tokens == whole.tokens


@given(data=st.data())
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_array_that_is_changed_is_named(data: st.DataObject, folder: Path) -> None:
    name = data.draw(st.sampled_from(NAMES))
    checkpoint, _ = left_by(name)
    arrays = dict(checkpoint.arrays)
    key = data.draw(st.sampled_from(sorted(arrays)))
    changes: dict[str, Callable[[mx.array], mx.array]] = {
        "flat": lambda a: a.flatten() if a.ndim > 1 else a[None],
        "more": lambda a: mx.concatenate([a, a], axis=-1),
        "none": lambda a: a[..., :0],
        "float": lambda a: a.astype(mx.float16),
        "whole": lambda a: a.astype(mx.int32) if a.dtype != mx.int32 else a.astype(mx.float32),
        "rows": lambda a: mx.concatenate([a, a], axis=0),
    }
    change = data.draw(st.sampled_from(sorted(changes)))
    arrays[key] = changes[change](arrays[key])
    assert isinstance(outcome(name, as_json(checkpoint), arrays, folder), str)


def test_an_array_that_is_missing_is_named(folder: Path) -> None:
    for name in NAMES:
        checkpoint, _ = left_by(name)
        for key in checkpoint.arrays:
            arrays = {k: v for k, v in checkpoint.arrays.items() if k != key}
            assert isinstance(outcome(name, as_json(checkpoint), arrays, folder), str)


def test_a_field_that_is_missing_or_unknown_is_named(folder: Path) -> None:
    checkpoint, _ = left_by("llama")
    content = as_json(checkpoint)
    for path in [(), ("tally",), ("tally", "counters"), ("request",), ("origin",)]:
        inside = content
        for key in path:
            inside = inside[key]
        found = outcome(
            "llama", put(content, path, {**inside, "more": 1}), checkpoint.arrays, folder
        )
        assert "more is unknown" in str(found)
    for key in content.keys() - {"unnamed"}:
        lacking = {k: v for k, v in content.items() if k != key}
        found = outcome("llama", lacking, checkpoint.arrays, folder)
        assert f"{key} is missing" in str(found)


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ((), [], "its content is not legal"),
        (("origin",), 5, "content.origin"),
        (("origin", "plugins"), "abc", "must be a list, not 'abc' @ content.origin.plugins"),
        (("tally", "forwards"), -1, "forwards must be a whole number of at least 0, not -1"),
        (("tally", "forwards"), "3", "must be a whole number, not '3' @ content.tally.forwards"),
        (("tally", "stats", "prefill_ms"), float("nan"), "must be a number, not nan"),
        (
            ("tally", "stats", "cached_tokens"),
            900,
            "tally.stats.cached_tokens is 900, the prompt has 6",
        ),
        (
            ("tally", "counters", "rounds"),
            [1],
            "tally.counters.rounds counts 1 tokens, the reply has",
        ),
        (("origins",), [["sampled", 2]], "origins counts 2 tokens, the reply has"),
        (("origins",), [["sampled", 0]], "must be a whole number of at least 1, not 0"),
        (("origins",), "ab", "must be a list, not 'ab'"),
        (("faults",), ["abc"], "content.faults"),
        (("faults",), "abc", "must be a list, not 'abc'"),
        (("logprobs",), [0.5], "logprobs has 1 entries, not 0"),
        (("ending",), "error", "ending must be 'stop' or 'length', not 'error'"),
        (("ending",), "stop", "ending is 'stop', and caches is not null"),
        (("unnamed",), 3, "where 15 tokens are held"),
        (("request", "options", "max_tokens"), 2, "tokens of at most 2"),
        (("request", "options", "logprobs"), "no", "options.logprobs must be true or false"),
        (
            ("request", "options", "sampling"),
            {"table": [["seed", 0.5]]},
            "seed must be a whole number",
        ),
        (("request", "options", "sampling"), {"table": [["top_k", 10**6]]}, "top_k must be below"),
        (("request", "options", "kv_bits"), 5, "its options are not legal here: kv_bits must be"),
        (
            ("request", "messages"),
            {"list": [3]},
            "request.messages must be null or a list of objects",
        ),
        (("request", "tools"), "x", "request.tools must be null or a list of objects"),
        (("caches",), None, "caches is null, and the reply has not ended"),
        (
            ("caches", "list", 0, "values", "offset"),
            3,
            "caches.0.offset is 3, where 12 tokens are held",
        ),
        (("caches", "list", 0, "values", "keys"), None, "caches.0.keys is None"),
        (("caches", "list", 0, "entry"), "ChunkedKVCache", "caches.0 is a ChunkedKVCache"),
        (("draft",), {"namespace": "x"}, "processed_tokens is missing"),
    ],
)
def test_what_is_wrong_is_named_with_its_field(
    path: tuple[Any, ...], value: Any, said: str, folder: Path
) -> None:
    checkpoint, _ = left_by("llama")
    assert said in str(
        outcome("llama", put(as_json(checkpoint), path, value), checkpoint.arrays, folder)
    )


@pytest.mark.parametrize(
    ("name", "array", "said"),
    [
        ("tokens", [5, 64], "tokens names token 64; the vocabulary is 0 to 63"),
        ("tokens", [-1], "tokens names token -1"),
        (
            "prompt",
            [0.5],
            "prompt must be a row of token ids, and is mlx.core.float32 of shape (1,)",
        ),
        ("prompt", [[5]], "prompt must be a row of token ids"),
    ],
)
def test_ids_that_are_none_are_named(name: str, array: Any, said: str, folder: Path) -> None:
    checkpoint, _ = left_by("llama")
    arrays = {**checkpoint.arrays, name: mx.array(array)}
    assert said in str(outcome("llama", as_json(checkpoint), arrays, folder))


# --- nothing is forgotten ---------------------------------------------------------------------


class Clock:
    """One millisecond more with every look."""

    def __init__(self, start: float) -> None:
        self.now = start

    def __call__(self) -> float:
        self.now += 1e-3
        return self.now


TIMES = {field.name for field in attrs.fields(Stats) if field.name.endswith("_ms")}


def test_every_field_of_stats_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A field that is new in ``Stats`` and not stored begins anew here, or counts from nowhere."""

    class Counting:
        def __init__(self) -> None:
            self.counts = {"asked": 0, "told": 0}

        def propose(self, view: Any) -> Any:  # noqa: ARG002
            self.counts["asked"] += 1

        def observe(self, ids: Any) -> None:
            self.counts["told"] += len(ids)

        def resolved(self, proposal: Any, accepted: int) -> None: ...

    def made() -> Engine:
        guest = Guest(sources=[lambda _: Counting()])
        return engine_with(shared_model("llama"), guest)

    left: list[Checkpoint] = []
    monkeypatch.setattr(time, "perf_counter", Clock(1e6))
    options = {**OPTIONS, "phase_times": True, "session": "a"}
    with made() as engine:
        engine.generate(PROMPT, **options)
        whole = engine.generate(PROMPT, on_checkpoint=left.append, checkpoint_every=6, **options)
    monkeypatch.setattr(time, "perf_counter", Clock(5.0))  # another process, another beginning
    with made() as engine:
        resumed = engine.resume(left[0]).result()
    for field in attrs.fields(Stats):
        ours, theirs = getattr(resumed.stats, field.name), getattr(whole.stats, field.name)
        if field.name in TIMES:
            stored = left[0].content["tally"]["stats"][field.name]
            assert 0 < stored <= ours < 1e5, field.name
        elif field.name == "spec":
            assert ours.keys() == theirs.keys()
            assert {k: v for k, v in ours.items() if k != "phase_ms"} == {
                k: v for k, v in theirs.items() if k != "phase_ms"
            }
        else:
            assert ours == theirs, field.name
    assert whole.stats.cached_tokens > 0
    assert whole.stats.fill["asked"] > 0


def test_times_of_phases_go_on() -> None:
    left: list[Checkpoint] = []
    with engine_with(shared_model("llama"), Guest.drafting(PROMPT, 1.0)) as engine:
        engine.generate(
            PROMPT, phase_times=True, on_checkpoint=left.append, checkpoint_every=6, **OPTIONS
        )
        stored = left[0].content["tally"]["phases"]
        resumed = engine.resume(left[0]).result()
    assert stored["verify"] > 0
    assert all(resumed.stats.spec["phase_ms"][name] >= round(ms, 3) for name, ms in stored.items())


def test_every_field_of_a_result_is_as_it_would_have_been() -> None:
    messages = [{"role": "user", "content": "the thing"}]
    options = {**OPTIONS, "logprobs": True, "top_logprobs": 2, "stop": "zzzz"}
    left: list[Checkpoint] = []
    engine = engine_of("llama")
    whole = engine.generate(
        messages, on_checkpoint=left.append, checkpoint_every=6, keep_cache=True, **options
    )
    resumed = engine.resume(left[0], keep_cache=True).result()
    for field in attrs.fields(type(whole)):
        ours, theirs = getattr(resumed, field.name), getattr(whole, field.name)
        if field.name == "cache":
            assert ours.tokens == theirs.tokens
        elif field.name != "stats":
            assert ours == theirs, field.name


GIVEN: dict[str, Any] = {
    "max_tokens": 9,
    "sampling": Sampling(temperature=0.5),
    "stop": ("zzz",),
    "stop_in_reasoning": True,
    "special_tokens_in_content": "text",
    "prompt_logprobs": None,
    "logprobs": True,
    "top_logprobs": 3,
    "prefill_step_size": 3,
    "max_kv_size": 40,
    "kv_bits": 8,
    "kv_group_size": 32,
    "quantized_kv_start": 3,
    "append_chunk": 2,
    "max_span": 9,
    "num_draft_tokens": 2,
    "session": "a",
    "eos_token_ids": (5, 9),
    "phase_times": True,
    "sources_policy": "verify",
    "sources": ("guest",),
    "checkpoint_every": 3,
    "delimiters": (3, 4),
    "template_options": {"a": [1, None, {"b": 2.5}]},
    "schema": None,
    "adapters": None,
}
"""A value of each option that is stored; None where another test tries it, or it is not stored."""
SAMPLED: dict[str, Any] = {
    "temperature": 0.7,
    "top_p": 0.9,
    "top_k": 7,
    "min_p": 0.01,
    "min_tokens_to_keep": 2,
    "xtc_probability": 0.3,
    "xtc_threshold": 0.2,
    "xtc_special_tokens": (3, 4),
    "seed": 77,
    "repetition_penalty": 1.1,
    "repetition_context_size": 7,
    "presence_penalty": 0.1,
    "presence_context_size": 8,
    "frequency_penalty": 0.2,
    "frequency_context_size": 9,
    "logit_bias": {3: 1.0},
}


def again(**options: Any) -> Options:
    """The options of a run that goes on from a checkpoint of one with ``options``."""
    left: list[Checkpoint] = []
    model = shared_model("llama", head_dim=32)
    with engine_with(model, Guest()) as engine:
        given = {"max_tokens": 12, "eos_token_ids": (), "checkpoint_every": 4, **options}
        engine.generate(PROMPT, on_checkpoint=left.append, **given)
        run = engine.resume(left[0])
        run.close()
    return run.options


def test_every_option_has_a_value_to_be_tried_with() -> None:
    assert GIVEN.keys() == {field.name for field in attrs.fields(Options)} - LIVE
    assert SAMPLED.keys() == {field.name for field in attrs.fields(Sampling)}


@pytest.mark.parametrize("name", GIVEN)
def test_every_option_is_as_it_was(name: str) -> None:
    value = GIVEN[name]
    kept = getattr(again(**{name: value}), name)
    if name == "sampling":
        kept = attrs.evolve(kept, seed=None)
    plain = list if isinstance(value, tuple) else lambda x: x
    assert plain(kept) == plain(value)


@pytest.mark.parametrize("name", SAMPLED)
def test_every_field_of_sampling_is_as_it_was(name: str) -> None:
    sampling = {"temperature": 0.5, "seed": 3, name: SAMPLED[name]}
    assert again(sampling=sampling).sampling == Sampling(**sampling)
