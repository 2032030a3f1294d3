"""LoRA adapters by name: each request as if the model had been loaded with its adapter alone."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten
from mlx_lm.tuner.utils import linear_to_lora_layers, load_adapters

from mlxfill import (
    CacheMismatchError,
    Checkpoint,
    CheckpointError,
    Engine,
    InputError,
    ModelError,
    ModelNotFoundError,
    RowScheduler,
)
from mlxfill_testing import Guest, engine_with, tiny_model

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KINDS = ["llama", "qwen3_5"]
PROMPT = [5, 9, 5, 9, 5, 7]
PLAIN, FIRST, SECOND = None, "first", "second"


def make_adapter(kind: str, folder: Path, seed: int, **config: Any) -> Path:
    """An adapter with random weights, as mlx-lm's training leaves one."""
    model = tiny_model(kind)
    parameters = {"rank": 4, "scale": 8.0, "dropout": 0.0}
    settled = {"fine_tune_type": "lora", "num_layers": 2, "lora_parameters": parameters, **config}
    linear_to_lora_layers(model, 2, parameters, use_dora=settled["fine_tune_type"] == "dora")
    mx.random.seed(seed)
    arrays: Any = tree_flatten(model.parameters())
    weights = {
        name: mx.random.normal(array.shape)
        for name, array in arrays
        if name.rpartition(".")[2] in {"lora_a", "lora_b"}
    }
    folder.mkdir()
    mx.save_safetensors(str(folder / "adapters.safetensors"), weights)
    (folder / "adapter_config.json").write_text(json.dumps(settled))
    return folder


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def folders(kind: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("adapters")
    return {
        name: make_adapter(kind, folder / name, seed) for seed, name in enumerate((FIRST, SECOND))
    }


@pytest.fixture(scope="module")
def expected(kind: str, folders: dict[str, Path]) -> dict[str | None, list[int]]:
    """What models say that were loaded with one adapter, by mlx-lm's own loader."""
    said: dict[str | None, list[int]] = {}
    for name in (PLAIN, FIRST, SECOND):
        model = tiny_model(kind)
        if name is not None:
            load_adapters(model, str(folders[name])).eval()
        with engine_with(model, Guest()) as alone:
            said[name] = alone.generate(PROMPT, max_tokens=24, seed=1, temperature=0.8).tokens
    assert len({tuple(tokens) for tokens in said.values()}) == 3
    return said


@pytest.fixture(scope="module")
def engine(
    kind: str, folders: dict[str, Path], expected: dict[str | None, list[int]]
) -> Iterator[Engine]:
    """An engine with both adapters mounted, and a source that is wrong more often than not."""
    guest = Guest.offering([*PROMPT, *expected[FIRST]], 0.8)
    with engine_with(tiny_model(kind), guest) as engine:
        for name, folder in folders.items():
            engine.mount_adapter(name, folder)
        yield engine


def ask(engine: Engine, name: str | None, **more: Any) -> list[int]:
    options = {"max_tokens": 24, "seed": 1, "temperature": 0.8, "adapters": name, **more}
    return engine.generate(PROMPT, **options).tokens


def test_a_request_says_what_a_model_with_its_adapter_alone_says(
    engine: Engine, expected: dict[str | None, list[int]]
) -> None:
    for name in (FIRST, PLAIN, SECOND, FIRST, PLAIN):
        assert ask(engine, name) == expected[name]


def test_requests_under_different_adapters_may_take_turns_token_by_token(
    engine: Engine, expected: dict[str | None, list[int]]
) -> None:
    names = (FIRST, PLAIN, SECOND)
    options: dict[str, Any] = {"max_tokens": 24, "seed": 1, "temperature": 0.8}
    runs = {name: engine.stream(PROMPT, adapters=name, **options) for name in names}
    said: dict[str | None, list[int]] = {name: [] for name in names}
    for _ in range(40):
        for name, run in runs.items():
            piece = next(run, None)
            if piece is not None and piece.token is not None:
                said[name].append(piece.token)
    assert said == expected


def test_rows_under_different_adapters_say_what_each_says_alone(
    engine: Engine, expected: dict[str | None, list[int]]
) -> None:
    names = (FIRST, PLAIN, SECOND, FIRST, PLAIN, SECOND, FIRST)
    options: dict[str, Any] = {"max_tokens": 24, "seed": 1, "temperature": 0.8}
    rows = RowScheduler(engine, max_rows=5)
    runs = [engine.stream(PROMPT, adapters=name, **options) for name in names]
    for run in runs:
        rows.add(run)
    while len(rows):
        rows.round()
    assert [run.result().tokens for run in runs] == [expected[name] for name in names]


def test_a_cache_is_of_use_under_its_own_adapter_only(
    engine: Engine, expected: dict[str | None, list[int]]
) -> None:
    kept = engine.generate(PROMPT[:-1], max_tokens=1, adapters=FIRST, keep_cache=True).cache
    assert kept is not None
    assert ask(engine, FIRST, cache=kept) == expected[FIRST]
    for name in (PLAIN, SECOND):
        with pytest.raises(CacheMismatchError, match="made with adapters='first'"):
            ask(engine, name, cache=kept)


def test_a_session_keeps_what_was_read_under_one_adapter_from_the_others(
    engine: Engine, expected: dict[str | None, list[int]]
) -> None:
    for name in (PLAIN, FIRST, SECOND, FIRST, PLAIN):
        assert ask(engine, name, session="one") == expected[name]


def test_a_checkpoint_on_the_way_leaves_the_adapter_on(
    engine: Engine, expected: dict[str | None, list[int]]
) -> None:
    """The first one asks for the weights without any."""
    left: list[Checkpoint] = []
    said = ask(engine, FIRST, on_checkpoint=left.append, checkpoint_every=3)
    assert said == expected[FIRST]
    assert len(left) > 2
    for checkpoint in left:
        assert engine.resume(checkpoint).result().tokens == expected[FIRST]


def test_a_checkpoint_is_refused_under_another_adapter_of_the_name(
    engine: Engine, kind: str, folders: dict[str, Path]
) -> None:
    left: list[Checkpoint] = []
    ask(engine, FIRST, on_checkpoint=left.append, checkpoint_every=9)
    with engine_with(tiny_model(kind)) as other:
        other.mount_adapter(FIRST, folders[SECOND])
        with pytest.raises(CheckpointError, match="or of another adapter 'first'"):
            other.resume(left[0])


def test_a_callback_may_ask_without_the_adapter(
    engine: Engine, expected: dict[str | None, list[int]]
) -> None:
    def asks(*shown: Any) -> Any:
        ask(engine, PLAIN, max_tokens=1)
        return shown[-1]

    every: dict[str, Any] = {"on_prefill_progress": asks, "logits_processors": [asks]}
    assert ask(engine, FIRST, prefill_step_size=2, **every) == expected[FIRST]
    request = {"prompt": PROMPT, "max_tokens": 24, "seed": 1, "temperature": 0.8, **every}
    results = engine.generate_batch([{**request, "adapters": FIRST}] * 2)
    assert [result.tokens for result in results] == [expected[FIRST]] * 2


@pytest.mark.parametrize("other", [FIRST, SECOND])
def test_a_run_that_is_collected_in_the_midst_of_a_forward_leaves_the_adapter_on(
    engine: Engine,
    expected: dict[str | None, list[int]],
    monkeypatch: pytest.MonkeyPatch,
    other: str,
) -> None:
    left = engine.stream(PROMPT, max_tokens=24, adapters=other)
    next(left)
    module = next(m for name, m in engine.model.named_modules() if name.endswith("layers.0.mlp"))
    forward, calls = type(module).__call__, []

    def called(self: Any, *arrays: Any) -> Any:
        calls.append(self)
        if len(calls) == 9:  # as Python's collector would, wherever it comes in
            left.close()
        return forward(self, *arrays)

    monkeypatch.setattr(type(module), "__call__", called)
    assert ask(engine, FIRST) == expected[FIRST]
    assert len(calls) > 9
    monkeypatch.undo()
    assert ask(engine, PLAIN) == expected[PLAIN]


def test_nobody_else_sees_the_adapter_of_a_request_that_ended(
    engine: Engine, expected: dict[str | None, list[int]]
) -> None:
    def stopped(*_: Any) -> Any:
        raise MemoryError

    ask(engine, FIRST)
    with engine_with(engine.model, Guest()) as other:
        assert ask(other, PLAIN) == expected[PLAIN]
        list(engine.stream(PROMPT, max_tokens=2, adapters=FIRST))
        assert ask(other, PLAIN) == expected[PLAIN]
        audited = engine.audited(PROMPT, max_tokens=2, adapters=FIRST)
        audited.run.result()
        for _ in audited.steps():
            assert ask(other, PLAIN, max_tokens=2) == expected[PLAIN][:2]
        with pytest.raises(MemoryError):
            engine.audit(PROMPT, max_tokens=2, adapters=FIRST, sampler=stopped)
        assert ask(other, PLAIN) == expected[PLAIN]


def test_engines_that_share_a_model_take_turns_token_by_token(
    kind: str, folders: dict[str, Path], expected: dict[str | None, list[int]]
) -> None:
    model = tiny_model(kind)
    options: dict[str, Any] = {"max_tokens": 24, "seed": 1, "temperature": 0.8}
    with engine_with(model, Guest()) as one, engine_with(model, Guest()) as other:
        one.mount_adapter(FIRST, folders[FIRST])
        run = one.stream(PROMPT, adapters=FIRST, **options)
        said = [next(run).token]
        other.mount_adapter(SECOND, folders[SECOND])
        for name in (PLAIN, SECOND):
            assert ask(other, name) == expected[name]
            said.append(next(run).token)
        turns = other.stream(PROMPT, adapters=SECOND, **options)
        said += [piece.token for _, piece in zip(turns, run, strict=False)]
        said += [piece.token for piece in run]
        assert [token for token in said if token is not None] == expected[FIRST]


def test_ctrl_c_between_two_adapters_leaves_no_mixture(
    engine: Engine, expected: dict[str | None, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: Any, name: str, value: Any) -> None:
        if not pressed:
            pressed.append(name)
            raise KeyboardInterrupt
        assign(self, name, value)

    ask(engine, PLAIN)
    mlp = type(engine.model.layers[-1].mlp)
    assign: Any = mlp.__setattr__
    for name in (FIRST, PLAIN, SECOND):
        pressed: list[str] = []
        with monkeypatch.context() as patch:
            patch.setattr(mlp, "__setattr__", interrupted)
            with pytest.raises(KeyboardInterrupt):
                ask(engine, FIRST)
        assert ask(engine, name) == expected[name]


def test_the_model_is_given_back_as_it_was(kind: str, folders: dict[str, Path]) -> None:
    model = tiny_model(kind)
    before = dict(model.named_modules())
    with engine_with(model, Guest()) as engine:
        engine.mount_adapter(FIRST, folders[FIRST])
        ask(engine, FIRST)
    after = dict(model.named_modules())
    assert after.keys() == before.keys()
    assert all(after[path] is before[path] for path in before)


def test_a_drafter_that_learned_without_adapters_says_so_and_harms_nothing(
    kind: str, folders: dict[str, Path], expected: dict[str | None, list[int]]
) -> None:
    truth = [*PROMPT, *expected[FIRST]]
    guest = Guest.drafting(truth, 0.7, supports_target_adapters=False)
    with engine_with(tiny_model(kind), guest) as engine:
        engine.mount_adapter(FIRST, folders[FIRST])
        assert ["learned without adapters" in fault.message for fault in engine.faults] == [True]
        assert ask(engine, FIRST) == expected[FIRST]


def test_an_unknown_name_is_told_with_those_that_are_there(engine: Engine) -> None:
    with pytest.raises(InputError, match="no adapter 'frist' is mounted; did you mean 'first'"):
        ask(engine, "frist")
    with pytest.raises(InputError, match="adapters must be a name"):
        engine.generate(PROMPT, adapters=3)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="mounted already"):
        engine.mount_adapter(FIRST, "elsewhere")


def test_what_does_not_fit_is_refused_and_the_model_stays_as_it_is(
    engine: Engine,
    tmp_path: Path,
    kind: str,
    expected: dict[str | None, list[int]],
) -> None:
    with pytest.raises(ModelNotFoundError, match=r"no adapter_config\.json"):
        engine.mount_adapter("none", tmp_path / "nowhere")
    folder = make_adapter(kind, tmp_path / "broken", 1)
    config = folder / "adapter_config.json"
    wider = {"rank": 7, "scale": 8.0, "dropout": 0.0}
    config.write_text(json.dumps({"num_layers": 2, "lora_parameters": wider}))
    with pytest.raises(ModelError, match="does not fit"):
        engine.mount_adapter("wider", folder)
    whole = make_adapter(kind, tmp_path / "whole", 3, fine_tune_type="full")
    with pytest.raises(ModelError, match="fine_tune_type 'full'"):
        engine.mount_adapter("whole", whole)
    assert ask(engine, PLAIN) == expected[PLAIN]
    assert ask(engine, SECOND) == expected[SECOND]


def test_an_adapter_is_used_in_another_thread_than_mounted(
    kind: str, folders: dict[str, Path], expected: dict[str | None, list[int]]
) -> None:
    with engine_with(tiny_model(kind)) as engine, ThreadPoolExecutor(1) as other:
        engine.mount_adapter(FIRST, folders[FIRST])
        options: dict[str, Any] = {"max_tokens": 24, "seed": 1, "temperature": 0.8}
        run = other.submit(engine.generate, PROMPT, adapters=FIRST, **options)
        assert run.result().tokens == expected[FIRST]
