"""Binding a target: the model's own arithmetic in two halves, and no trace afterwards."""

from __future__ import annotations

import copy
import threading
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import pytest

from mlxfill import DrafterError, ModelError
from mlxfill.model.target import Target
from mlxfill_testing import (
    ARCHITECTURES,
    VOCAB,
    engine_with,
    reference_tokens,
    shared_model,
    tiny_model,
)
from patience import AT_ALL

IDS = mx.array([[3, 17, 42, 5, 63, 9, 11]])
each_architecture = pytest.mark.parametrize("name", ARCHITECTURES)


def classes(model: nn.Module) -> list[type]:
    return [type(module) for _, module in model.named_modules()]


def same(a: mx.array, b: mx.array) -> bool:
    return a.shape == b.shape and bool(mx.array_equal(a, b).item())


def whole(model: Any, ids: mx.array) -> mx.array:
    """Logits of the unbound model on a fresh cache."""
    from mlx_lm.models.cache import make_prompt_cache

    logits: mx.array = model(ids, cache=make_prompt_cache(model))
    mx.eval(logits)
    return logits


def test_there_are_enough_architectures() -> None:
    assert len(ARCHITECTURES) >= 16


@each_architecture
def test_hidden_and_head_apart_give_the_logits_of_the_whole(name: str) -> None:
    model = shared_model(name)
    expected = whole(model, IDS)
    with Target(model) as target:
        assert target.split, target.reason
        hidden = target.hidden(IDS, target.new_cache())
        assert hidden.shape == (1, IDS.shape[1], target.hidden_size)
        assert same(target.project(hidden), expected)
        assert same(target.project(hidden[:, -1:]), expected[:, -1:])
        assert same(target.project(hidden[:, 2:4]), expected[:, 2:4])
        assert same(target.forward(IDS, target.new_cache()), expected)


@each_architecture
def test_the_hidden_half_fills_the_cache_like_the_whole(name: str) -> None:
    with Target(shared_model(name)) as target:
        apart, together = target.new_cache(), target.new_cache()
        mx.eval(target.hidden(IDS, apart), target.forward(IDS, together))
        after = mx.array([[7]])
        assert same(target.forward(after, apart), target.forward(after, together))


@each_architecture
def test_facts_of_the_target(name: str) -> None:
    model = shared_model(name)
    with Target(model) as target:
        assert target.vocab_size == VOCAB
        assert target.layer_count == len(target.layers) == len(model.layers)
        assert target.dtype == mx.float32


@each_architecture
def test_aux_states_are_what_the_layers_answer(name: str) -> None:
    """Judge: a subclass of each layer that writes down its output, put in by hand."""
    model = tiny_model(name)
    written: dict[int, mx.array] = {}

    def wiretap(at: int, layer: nn.Module) -> None:
        original = type(layer)

        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            output = original.__call__(self, *args, **kwargs)
            written[at] = output[0] if isinstance(output, tuple) else output
            return output

        layer.__class__ = type(original.__name__, (original,), {"__call__": call})

    with Target(model) as target:
        wanted = (0, target.layer_count - 1)
        with target.taping() as tape:
            mx.eval(target.forward(IDS, target.new_cache()))
        both = target.aux_states(tape, wanted)
        last = target.aux_states(tape, wanted[1:])
    for at in wanted:
        wiretap(at, model.layers[at])
    whole(model, IDS)
    assert same(last, written[wanted[1]])
    assert same(both, mx.concatenate([written[at] for at in wanted], axis=-1))


@each_architecture
def test_embedding_rows_come_from_the_embedding_table(name: str) -> None:
    with Target(shared_model(name)) as target:
        assert target.embedding is not None
        rows = target.embed(IDS)
        assert rows.shape[:2] == IDS.shape
        assert same(rows, target.embedding.weight[IDS])


@each_architecture
def test_a_head_of_some_rows_gives_those_logits(name: str) -> None:
    with Target(shared_model(name)) as target:
        hidden = target.hidden(IDS, target.new_cache())
        rows = [2, 3, 40, 63]
        got = target.head_rows(rows)(hidden)
        assert got.shape == (1, IDS.shape[1], len(rows))
        assert mx.allclose(got, target.project(hidden)[..., mx.array(rows)], rtol=1e-5, atol=1e-5)


@each_architecture
def test_modules_have_other_classes_only_while_a_tape_runs(name: str) -> None:
    model = tiny_model(name)
    before, attributes = classes(model), set(vars(model))
    target = Target(model)
    assert all(a is b for a, b in zip(classes(model), before, strict=True))
    with target.taping():
        assert classes(model) != before
        assert [c.__name__ for c in classes(model)] == [c.__name__ for c in before]
        with target.taping():
            assert classes(model) != before
        assert classes(model) != before
    with pytest.raises(KeyError), target.taping():
        raise KeyError
    assert all(a is b for a, b in zip(classes(model), before, strict=True))
    target.close()
    target.close()
    after = classes(model)
    assert all(a is b for a, b in zip(after, before, strict=True))
    assert set(vars(model)) == attributes


@pytest.mark.parametrize("first_closed", [0, 1])
def test_two_engines_share_a_model_and_close_in_any_order(first_closed: int) -> None:
    model = tiny_model("qwen3_5")
    before = classes(model)
    prompt = [3, 4, 5]
    expected = reference_tokens(model, prompt, 8)
    engines = [engine_with(model), engine_with(model)]
    for engine in engines:
        assert engine.generate(prompt, max_tokens=8, eos_token_ids=[]).tokens == expected
    engines[first_closed].close()
    other = engines[1 - first_closed]
    assert other.target.split
    with other.target.taping() as tape:
        mx.eval(other.target.forward(IDS, other.target.new_cache()))
    assert tape.calls
    assert other.generate(prompt, max_tokens=8, eos_token_ids=[]).tokens == expected
    other.close()
    assert all(a is b for a, b in zip(classes(model), before, strict=True))


def test_a_copy_of_a_bound_model_is_whole_and_unbound() -> None:
    model = tiny_model("qwen3_5")
    before = classes(model)
    with Target(model):
        other = copy.deepcopy(model)
    assert all(a is b for a, b in zip(classes(other), before, strict=True))
    with Target(other) as target:
        assert target.split
        assert same(target.forward(IDS, target.new_cache()), whole(model, IDS))
    assert all(a is b for a, b in zip(classes(other), before, strict=True))


def test_a_model_without_tape_records_nothing() -> None:
    with Target(tiny_model("llama")) as target:
        with target.taping() as tape:
            pass
        mx.eval(target.forward(IDS, target.new_cache()))
        assert tape.calls == []


def test_threads_do_not_see_each_others_tapes() -> None:
    model = tiny_model("llama")
    lengths: dict[int, set[int]] = {}
    started = threading.Barrier(2)

    with Target(model) as first, Target(model) as second:

        def work(target: Target, length: int) -> None:
            ids = mx.array([list(range(1, length + 1))])
            with target.taping() as tape:
                started.wait(AT_ALL)
                for _ in range(5):
                    mx.eval(target.forward(ids, target.new_cache()))
                started.wait(AT_ALL)
            mx.clear_streams()  # a thread that leaves its streams behind ends the process later
            lengths[length] = {call.args[0].shape[1] for call in tape.calls}
            assert len(tape.calls) == 5 * target.layer_count

        threads = [threading.Thread(target=work, args=pair) for pair in ((first, 3), (second, 5))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(AT_ALL)
    assert lengths == {3: {3}, 5: {5}}


# --- models that are not made like the others --------------------------------------


class Headless(nn.Module):
    """Embedding, layers and logits in one module: there is no head to stand apart."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.inner: Any = tiny_model("llama").model
        self.embed_tokens = self.inner.embed_tokens
        self.layers = self.inner.layers

    def __call__(self, ids: mx.array, cache: Any = None) -> Any:
        return self.embed_tokens.as_linear(self.inner(ids, cache))


class Knowing(nn.Module):
    """Its head knows something that no hidden state tells: split and whole cannot agree."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.model: Any = tiny_model("llama").model

    @property
    def layers(self) -> Any:
        return self.model.layers

    def __call__(self, ids: mx.array, cache: Any = None) -> Any:
        hidden = self.model(ids, cache)
        scale = 1.0 if cache is None else 2.0
        return self.model.embed_tokens.as_linear(hidden) * scale


@pytest.mark.parametrize("make", [Headless, Knowing])
def test_a_model_that_cannot_be_split_says_why_and_generates(make: type) -> None:
    model = make()
    prompt = [5, 6, 7]
    expected = reference_tokens(model, prompt, 10)
    with engine_with(model) as engine:
        assert not engine.target.split
        assert engine.target.reason
        assert engine.generate(prompt, max_tokens=10, eos_token_ids=[]).tokens == expected


class Rounding(Knowing):
    """Its logits, with a cache and without, differ by a share of the largest of them."""

    def __init__(self, dtype: mx.Dtype, share: float, *, masked: bool = False) -> None:
        super().__init__()
        self.set_dtype(dtype)
        self.share, self.masked = share, masked

    def __call__(self, ids: mx.array, cache: Any = None) -> Any:
        logits = self.model.embed_tokens.as_linear(self.model(ids, cache))
        if self.masked:
            logits[..., 3] = -mx.inf
            logits[..., 4] = mx.inf
        return logits if cache is None else (logits * (1 + self.share)).astype(logits.dtype)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    ("dtype", "share", "split"),
    [
        (mx.float32, 0.0, True),
        (mx.float32, 6 * 2**-23, True),
        (mx.float32, 1e-4, False),
        (mx.bfloat16, 2**-7, True),
        (mx.bfloat16, 0.1, False),
        (mx.float16, 2**-10, True),
        (mx.float16, 0.02, False),
        (mx.float32, float("nan"), False),
    ],
)
def test_rounding_keeps_the_saving_and_anything_larger_does_not(
    dtype: mx.Dtype, share: float, *, split: bool, masked: bool
) -> None:
    """A tuned BLAS adds up otherwise for one row than for several, within the last places."""
    with Target(Rounding(dtype, share, masked=masked)) as target:
        assert target.split == split, target.reason


def test_a_model_that_fails_on_the_probe_is_refused_and_left_alone() -> None:
    model = tiny_model("llama")
    before = classes(model)
    model.model.norm.weight = mx.zeros((3,))
    with pytest.raises(ModelError, match="two-token probe"):
        Target(model)
    assert all(a is b for a, b in zip(classes(model), before, strict=True))


def test_a_model_without_embedding_refuses_to_embed() -> None:
    with Target(shared_model("llama")) as target:
        target.embedding = None
        with pytest.raises(DrafterError, match="embedding"):
            target.embed(IDS)
