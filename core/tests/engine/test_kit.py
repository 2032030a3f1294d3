"""The kit for authors of plugins: models that prove something, guesses as right as ordered."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten
from mlx_lm.models.cache import KVCache, make_prompt_cache

import mlxfill
from mlxfill_testing import (
    ARCHITECTURES,
    EOS,
    ROUNDED,
    VOCAB,
    Guest,
    Script,
    ScriptedSource,
    contents,
    differences,
    engine_with,
    perturbed,
    plain,
    plugged,
    reference_tokens,
    shared_model,
    tiny_folder,
    tiny_model,
    tiny_tokenizer,
)
from mlxfill_testing.architectures import model_files

PROMPT = [7, 30, 9, 30, 11, 4]


@pytest.mark.parametrize("name", sorted(ARCHITECTURES))
def test_every_token_of_the_context_matters_to_a_tiny_model(name: str) -> None:
    """A block that is switched off would let a broken rewind pass."""
    model = shared_model(name)
    base = model(mx.array([PROMPT]), cache=make_prompt_cache(model))[0, -1]
    for at in range(len(PROMPT)):
        other = [*PROMPT[:at], (PROMPT[at] + 1) % VOCAB, *PROMPT[at + 1 :]]
        logits = model(mx.array([other]), cache=make_prompt_cache(model))[0, -1]
        assert mx.abs(logits - base).max().item() > 1e-3, at  # type: ignore[operator]


@pytest.mark.parametrize("name", sorted(ARCHITECTURES))
def test_every_array_of_a_cache_matters_to_a_tiny_model(name: str) -> None:
    """Were one of them lost in a rewind, the next logits would tell."""
    model = shared_model(name)

    def after(spoilt: int | None) -> Any:
        cache = make_prompt_cache(model)
        mx.eval(model(mx.array([PROMPT]), cache=cache))
        if spoilt is not None:
            arrays = [a for e in cache for a in parts(e)]
            if spoilt >= len(arrays):
                return None
            holder, key = arrays[spoilt]
            holder[key] = holder[key] + 0.5
        return model(mx.array([[5]]), cache=cache)

    base, spoilt = after(None), 0
    while (logits := after(spoilt)) is not None:
        assert not mx.array_equal(logits, base), spoilt
        spoilt += 1
    assert spoilt >= len(make_prompt_cache(model))


def parts(entry: Any) -> list[tuple[Any, Any]]:
    """Where the arrays of a cache entry stand: containers and keys."""
    if hasattr(entry, "caches"):
        return [p for part in entry.caches for p in parts(part)]
    held = entry.cache if hasattr(entry, "cache") else vars(entry)
    keys = range(len(held)) if isinstance(held, list) else ("keys", "values")
    return [(held, key) for key in keys if held[key] is not None]


def test_equal_seeds_give_equal_weights_and_others_do_not() -> None:
    def weights(**options: Any) -> mx.array:
        flat: Any = tree_flatten(tiny_model("qwen3_5", **options).parameters())
        return mx.concatenate([w.flatten() for _, w in flat])

    assert mx.array_equal(weights(), weights())
    assert not mx.array_equal(weights(), weights(seed=1))


def test_a_shared_model_is_made_once() -> None:
    assert shared_model("llama") is shared_model("llama")
    assert shared_model("llama", num_hidden_layers=2) is not shared_model("llama")


def test_a_perturbed_model_agrees_some_of_the_time() -> None:
    model, other = shared_model("llama"), tiny_model("llama")
    ids = mx.array([list(range(60))])
    ours, theirs = (mx.argmax(m(ids), axis=-1) for m in (model, perturbed(model, other, 0.05)))
    share: Any = mx.mean(ours == theirs).item()
    assert 0.3 < share < 1.0


def test_the_rounded_ones_are_known_architectures() -> None:
    assert set(model_files()) > ROUNDED
    assert set(model_files()) > set(ARCHITECTURES)


# --- tokenizer -----------------------------------------------------------------------------------


def test_every_id_is_a_piece_of_text_of_its_own() -> None:
    tokenizer = tiny_tokenizer()
    pieces = [tokenizer.decode([i]) for i in range(VOCAB)]
    assert len(set(pieces)) == VOCAB
    assert all(pieces)
    assert tokenizer.decode(list(range(VOCAB))) == "".join(pieces)
    assert tokenizer.eos_token_ids == {EOS}


def test_text_goes_to_ids_and_back() -> None:
    tokenizer = tiny_tokenizer()
    for text in ("the thing, on 3.", "an {in}\n'at'", "<user>hi<end><reply>"):
        assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text
    assert len(tokenizer.encode("the", add_special_tokens=False)) == 1


# --- guesses -------------------------------------------------------------------------------------


@pytest.mark.parametrize("accuracy", [0.0, 0.25, 0.9, 1.0])
def test_a_script_is_as_right_as_ordered(accuracy: float) -> None:
    truth = [(i * 7) % VOCAB for i in range(2000)]
    guessed = Script(truth, accuracy, 3).guess(0, 2000)
    right = sum(a == b for a, b in zip(truth, guessed, strict=True)) / 2000
    assert abs(right - accuracy) < 0.04
    assert all(0 <= token < VOCAB for token in guessed)
    assert guessed == Script(truth, accuracy, 3).guess(0, 2000)


def test_past_its_end_a_script_still_names_legal_ids() -> None:
    guessed = Script([1, 2, 3], 1.0).guess(2, 50)
    assert guessed[0] == 3
    assert all(0 <= token < VOCAB for token in guessed)


def test_a_scripted_source_notices_a_session_that_it_was_not_told_of() -> None:
    model = shared_model("llama")

    class Deaf(ScriptedSource):
        def observe(self, ids: Any) -> None: ...

    guest = Guest(sources=[lambda r: Deaf(request=r, script=Script(PROMPT, 1.0))])
    result = plugged(model, guest, PROMPT, 5)
    assert [fault.where for fault in result.faults] == ["propose"]
    assert "what was observed" in result.faults[0].message


def test_a_guest_hears_of_its_requests() -> None:
    guest = Guest()
    plugged(shared_model("llama"), guest, PROMPT, 5)
    kinds = [event.kind for event in guest.events]
    assert (kinds[0], kinds[-1]) == ("request", "finish")
    assert guest.events[-1].data["finish_reason"] == "length"


def test_an_engine_of_the_kit_reads_no_config(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    (tmp_path / "mlxfill.toml").write_text("[generation]\nmax_tokens = 1\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLXFILL_GENERATION__MAX_TOKENS", "2")
    with engine_with(shared_model("llama")) as engine:
        assert len(engine.generate(PROMPT, eos_token_ids=()).tokens) == 512
        assert engine.plugins.names == ()


def test_the_judges_agree() -> None:
    model = shared_model("qwen3_5")
    assert plain(model, PROMPT, 9).tokens == reference_tokens(model, PROMPT, 9)
    assert plugged(model, Guest(), PROMPT, 9).tokens == reference_tokens(model, PROMPT, 9)


def test_a_generation_method_may_take_over() -> None:
    """A model that is not autoregressive generates in its own way, under the same limits."""

    class Counting:
        name = "counting"

        def generate(self, request: Any) -> Any:
            return ([(i % VOCAB, "count")] for i in range(len(request.prompt_ids), 1 << 40))

    guest = Guest(method=Counting())
    result = plugged(shared_model("llama"), guest, PROMPT, 5)
    assert (result.tokens, set(result.origins)) == ([6, 7, 8, 9, 10], {"count"})
    assert result.finish_reason == "length"
    ended = plugged(shared_model("llama"), guest, PROMPT, 50, eos_token_ids=[9])
    assert (ended.tokens, ended.finish_reason) == ([6, 7, 8], "stop")


# --- caches and folders ------------------------------------------------------------------------


def test_a_cache_of_a_class_of_the_models_own_is_compared_by_its_attributes() -> None:
    model = shared_model("deepseek_v41")
    ours, theirs = make_prompt_cache(model), make_prompt_cache(model)
    for cache in (ours, theirs):
        mx.eval(model(mx.array([PROMPT]), cache=cache))
    assert differences(ours, theirs) == []
    mx.eval(model(mx.array([[5]]), cache=ours))
    assert "entry 0 (LayerCache): window" in differences(ours, theirs)


def test_contents_leave_out_what_does_not_count() -> None:
    model = shared_model("llama")
    ours, theirs = make_prompt_cache(model), make_prompt_cache(model)
    mx.eval(model(mx.array([PROMPT]), cache=ours), model(mx.array([PROMPT]), cache=theirs))
    assert differences(ours, theirs) == []
    mx.eval(model(mx.array([[1, 2, 3]]), cache=ours))
    assert any("keys" in line for line in differences(ours, theirs))
    for entry in ours:
        entry.trim(3)
    assert differences(ours, theirs) == []
    assert contents(KVCache()) == {"offset": 0}


@pytest.mark.parametrize("name", ["llama", "qwen3_5", "falcon_h1"])
def test_a_tiny_folder_holds_the_shared_model(name: str, tmp_path: Any) -> None:
    folder = tiny_folder(tmp_path / name, name)
    with mlxfill.load(folder, plugins=[], config={}) as engine:
        result = engine.generate(PROMPT, max_tokens=9, eos_token_ids=())
    assert result.tokens == plain(shared_model(name), PROMPT, 9).tokens
