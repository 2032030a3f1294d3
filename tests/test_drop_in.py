"""``mlxfill.stream_generate`` in the place of mlx-lm's: the same responses, field by field."""

from __future__ import annotations

import copy
import gc
import weakref
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import mlx_lm
import pytest
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.sample_utils import make_logits_processors, make_sampler

import mlxfill
from mlxfill import Policy, Proposal
from mlxfill.plugins import PluginManager
from mlxfill_model_tiny.demo.asks import demo_asks
from mlxfill_testing import (
    ARCHITECTURES,
    Guest,
    Script,
    ScriptedSource,
    contents,
    differences,
    shared_model,
    tiny_model,
    tiny_tokenizer,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

FIELDS = (
    "token",
    "from_draft",
    "prompt_tokens",
    "generation_tokens",
    "finish_reason",
)
NGRAM = {"plugins": ["spec-ngram"], "config": {"gate": {"enabled": False}}}
PLAIN: dict[str, Any] = {"plugins": [], "config": {}}
PROMPT = [7, 30, 9, 30, 11, 4]


@pytest.fixture(autouse=True)
def exact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exact arithmetic, and nothing of the user's own."""
    mx.set_default_device(mx.cpu)
    for variable in ("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def tiny() -> tuple[Any, Any]:
    """The embedded model and its tokenizer, loaded by mlx-lm."""
    import mlxfill_model_tiny

    folder = Path(mlxfill_model_tiny.__file__).parent / "models" / "target"
    model, tokenizer, *_ = mlx_lm.load(str(folder))
    model.set_dtype(mx.float32)
    return model, tokenizer


def alike(ours: Iterable[Any], theirs: Iterable[Any], *, drafts: bool = False) -> list[Any]:
    """Compare responses; ``drafts``: ours may come from drafts.  Answers ours.

    mlx-lm's detokenizer takes the first space of a reply away.
    """
    mine, other = list(ours), list(theirs)
    assert len(mine) == len(other)
    texts = ["".join(each.text for each in responses) for responses in (mine, other)]
    assert texts[0] in (texts[1], f" {texts[1]}")
    if texts[0] == texts[1]:
        assert [a.text for a in mine] == [b.text for b in other]
    for a, b in zip(mine, other, strict=True):
        for field in FIELDS:
            if field != "from_draft" or not drafts:
                assert getattr(a, field) == getattr(b, field), field
        assert mx.array_equal(a.logprobs, b.logprobs)
        assert type(a) is type(b)
        assert type(a.token) is int
        assert a.prompt_tps > 0
        assert a.generation_tps > 0
        assert a.peak_memory >= 0
    return mine


def ask(tokenizer: Any) -> list[int]:
    return list(tokenizer.encode(written(tokenizer), add_special_tokens=False))


def written(tokenizer: Any) -> str:
    """A chat with tools as text."""
    first = demo_asks()[0]
    return str(
        tokenizer.apply_chat_template(
            list(first.messages), list(first.tools), add_generation_prompt=True, tokenize=False
        )
    )


# --- the embedded model ----------------------------------------------------------------------


@pytest.mark.parametrize("options", [PLAIN, NGRAM], ids=["plain", "ngram"])
@pytest.mark.parametrize("limit", [1, 2, 20, 200, -1])
def test_a_reply_of_the_embedded_model(
    tiny: tuple[Any, Any], limit: int, options: dict[str, Any]
) -> None:
    """Short limits end by length, long ones by the model's own end."""
    model, tokenizer = tiny
    prompt = ask(tokenizer)
    theirs = list(mlx_lm.stream_generate(model, tokenizer, prompt, max_tokens=limit))
    ours = mlxfill.stream_generate(
        model, tokenizer, prompt, max_tokens=limit, engine_options=options
    )
    mine = alike(ours, theirs, drafts=options is NGRAM)
    assert mine[-1].finish_reason == ("length" if 0 < limit <= 20 else "stop")
    if options is NGRAM and limit == 200:
        assert any(response.from_draft for response in mine)


def test_a_prompt_as_text_or_array(tiny: tuple[Any, Any]) -> None:
    model, tokenizer = tiny
    for prompt in (written(tokenizer), mx.array(ask(tokenizer))):
        alike(
            mlxfill.stream_generate(model, tokenizer, prompt, 30, engine_options=PLAIN),
            mlx_lm.stream_generate(model, tokenizer, prompt, 30),
        )


@pytest.mark.parametrize("options", [PLAIN, NGRAM], ids=["plain", "ngram"])
def test_a_conversation_in_one_prompt_cache(tiny: tuple[Any, Any], options: dict[str, Any]) -> None:
    """Two calls with one cache: the second continues, processors see its own tokens only."""
    model, tokenizer = tiny
    first = ask(tokenizer)
    follow = tokenizer.encode(
        "<|im_end|>\n<|im_start|>user\nAnd the last?", add_special_tokens=False
    )
    ours, theirs = make_prompt_cache(model), make_prompt_cache(model)
    processors = make_logits_processors(repetition_penalty=1.2)
    for prompt, limit in ((first, 12), (follow, 25), ([5], 7)):
        common: dict[str, Any] = {"max_tokens": limit, "logits_processors": processors}
        alike(
            mlxfill.stream_generate(
                model, tokenizer, prompt, prompt_cache=ours, engine_options=options, **common
            ),
            mlx_lm.stream_generate(model, tokenizer, prompt, prompt_cache=theirs, **common),
            drafts=True,
        )
        assert differences(ours, theirs) == []


# --- every kind of cache -----------------------------------------------------------------------


def plugged(truth: list[int], accuracy: float) -> dict[str, Any]:
    """Engine options with a source that is right this often."""
    manager = PluginManager([("guest", Guest.offering(truth, accuracy))])
    return {"plugins": manager, "config": {"gate": {"enabled": False}}}


@pytest.mark.parametrize("accuracy", [0.0, 0.7, 1.0])
@pytest.mark.parametrize("name", ["llama", "qwen3_5", "gpt2", "mamba", "rwkv7", "lfm2", "llama4"])
def test_a_cache_is_left_as_mlx_lm_leaves_it(name: str, accuracy: float) -> None:
    """The whole reply is in the caller's cache, the last token and an end included."""
    model, tokenizer = shared_model(name), tiny_tokenizer()
    long = [r.token for r in mlx_lm.stream_generate(model, tokenizer, PROMPT, 40)]
    options = plugged([*PROMPT, *long], accuracy)
    for limit in (1, 7, 40):
        ours, theirs = make_prompt_cache(model), make_prompt_cache(model)
        alike(
            mlxfill.stream_generate(
                model, tokenizer, PROMPT, limit, prompt_cache=ours, engine_options=options
            ),
            mlx_lm.stream_generate(model, tokenizer, PROMPT, limit, prompt_cache=theirs),
            drafts=True,
        )
        assert differences(ours, theirs) == []


@pytest.mark.parametrize("name", sorted(ARCHITECTURES))
def test_a_second_call_continues_a_cache_of_any_kind(name: str) -> None:
    """Also one that does not count its tokens: mlx-lm continues it without counting."""
    model, tokenizer = shared_model(name), tiny_tokenizer()
    ours, theirs = make_prompt_cache(model), make_prompt_cache(model)
    for prompt in (PROMPT, [9, 9, 3]):
        alike(
            mlxfill.stream_generate(
                model, tokenizer, prompt, 6, prompt_cache=ours, engine_options=PLAIN
            ),
            mlx_lm.stream_generate(model, tokenizer, prompt, 6, prompt_cache=theirs),
        )
    assert [len(contents(entry)) for entry in ours] == [len(contents(e)) for e in theirs]


@pytest.mark.parametrize("taken", [1, 2, 5])
def test_a_consumer_that_leaves_finds_what_it_took_in_the_cache(taken: int) -> None:
    model, tokenizer = shared_model("qwen3_5"), tiny_tokenizer()
    ours, theirs = make_prompt_cache(model), make_prompt_cache(model)
    mine = mlxfill.stream_generate(
        model, tokenizer, PROMPT, 20, prompt_cache=ours, engine_options=PLAIN
    )
    other = mlx_lm.stream_generate(model, tokenizer, PROMPT, 20, prompt_cache=theirs)
    assert len(list(islice(mine, taken))) == len(list(islice(other, taken))) == taken
    mine.close()
    other.close()
    assert differences(ours, theirs) == []


# --- keywords ------------------------------------------------------------------------------------

KEYWORDS: dict[str, dict[str, Any]] = {
    "prefill": {"prefill_step_size": 2},
    "ring": {"max_kv_size": 8},
    "quantized": {"kv_bits": 8, "kv_group_size": 32, "quantized_kv_start": 8},
    "greedy": {"sampler": make_sampler(temp=0.0)},
    "bias": {"logits_processors": make_logits_processors({7: 4.0})},
    "penalties": {"logits_processors": make_logits_processors(None, 1.4, 10)},
    "nothing": {"sampler": None, "logits_processors": None, "max_kv_size": None, "kv_bits": None},
    "drafts": {"num_draft_tokens": 3},
}


@pytest.mark.parametrize("keywords", KEYWORDS.values(), ids=KEYWORDS)
def test_keywords_of_mlx_lm(keywords: dict[str, Any]) -> None:
    model = shared_model("qwen2", num_attention_heads=2, num_key_value_heads=1, head_dim=32)
    alike(
        mlxfill.stream_generate(
            model, tiny_tokenizer(), PROMPT, 30, engine_options=PLAIN, **keywords
        ),
        mlx_lm.stream_generate(model, tiny_tokenizer(), PROMPT, 30, **keywords),
    )


def test_progress_is_reported_as_by_mlx_lm() -> None:
    model = shared_model("llama")
    seen: list[list[tuple[int, int]]] = [[], []]
    caches = make_prompt_cache(model), make_prompt_cache(model)
    for _ in range(2):
        both: list[tuple[Any, dict[str, Any]]] = [
            (mlxfill.stream_generate, {"engine_options": PLAIN}),
            (mlx_lm.stream_generate, {}),
        ]
        for at, (generate, more) in enumerate(both):
            responses: Any = generate(
                model,
                tiny_tokenizer(),
                PROMPT,
                2,
                prompt_cache=caches[at],
                prefill_step_size=2,
                prompt_progress_callback=lambda *counts, at=at: seen[at].append(counts),
                **more,
            )
            list(responses)
    assert seen[0] == seen[1]
    assert len(seen[0]) > 4


def test_the_same_global_seed_gives_the_same_text() -> None:
    model, sampler = shared_model("llama"), make_sampler(temp=1.0, top_p=0.95)
    texts = []
    for seed in (3, 3, 4):
        mx.random.seed(seed)
        responses = mlxfill.stream_generate(
            model, tiny_tokenizer(), PROMPT, 20, sampler=sampler, engine_options=PLAIN
        )
        texts.append("".join(r.text for r in responses))
    assert texts[0] == texts[1] != texts[2]


def test_the_users_own_defaults_do_not_reach_a_call_written_for_mlx_lm(tmp_path: Path) -> None:
    (tmp_path / "mlxfill.toml").write_text(
        "plugins = []\n[generation]\ntemperature = 1.5\nmax_tokens = 3\nprefill_step_size = 1\n"
    )
    model = shared_model("llama")
    alike(
        mlxfill.stream_generate(model, tiny_tokenizer(), PROMPT, 20),
        mlx_lm.stream_generate(model, tiny_tokenizer(), PROMPT, 20),
    )


def test_asserted_tokens_carry_log_probabilities_too() -> None:
    """mlx-lm's responses always hold a row; so do those of tokens that were not chosen."""

    class Once(ScriptedSource):
        def propose(self, view: Any) -> Proposal | None:
            at = view.length - len(PROMPT)
            return Proposal((50, 51, 52), Policy.ASSERT, "fill") if at == 2 else None

    guest = Guest(sources=[lambda r: Once(request=r, script=Script(PROMPT, 1.0))])
    options = {
        "plugins": PluginManager([("guest", guest)]),
        "config": {"trust": {"assert": ["guest"]}, "gate": {"enabled": False}},
    }
    responses = list(
        mlxfill.stream_generate(
            shared_model("llama"), tiny_tokenizer(), PROMPT, 8, engine_options=options
        )
    )
    assert [r.token for r in responses][2:5] == [50, 51, 52]
    assert [r.from_draft for r in responses] == [False] * 2 + [True] * 3 + [False] * 3
    assert all(r.logprobs.shape == (64,) for r in responses)


# --- the model stays the user's ---------------------------------------------------------------


def test_a_model_is_bound_once_and_let_go_with_its_last_user() -> None:
    model = tiny_model("llama")
    for _ in range(3):
        list(mlxfill.stream_generate(model, tiny_tokenizer(), PROMPT, 2, engine_options=PLAIN))
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_a_used_model_can_be_copied() -> None:
    model = tiny_model("llama")
    options: dict[str, Any] = {"engine_options": PLAIN}
    first = [
        r.token for r in mlxfill.stream_generate(model, tiny_tokenizer(), PROMPT, 5, **options)
    ]
    other = copy.deepcopy(model)
    del model
    again = mlxfill.stream_generate(other, tiny_tokenizer(), PROMPT, 5, **options)
    assert [response.token for response in again] == first


def test_weights_of_a_bound_model_are_saved_as_before(tmp_path: Path) -> None:
    model = tiny_model("qwen3_5")
    model.save_weights(str(tmp_path / "before.safetensors"))
    list(mlxfill.stream_generate(model, tiny_tokenizer(), PROMPT, 2, engine_options=PLAIN))
    model.save_weights(str(tmp_path / "after.safetensors"))
    before, after = (mx.load(str(tmp_path / f"{n}.safetensors")) for n in ("before", "after"))
    assert isinstance(before, dict)
    assert isinstance(after, dict)
    assert before.keys() == after.keys()


@pytest.mark.parametrize("error", [None, KeyboardInterrupt, MemoryError])
def test_a_call_that_is_left_or_broken_off_is_over(error: Any) -> None:
    model, tokenizer = shared_model("qwen3_5"), tiny_tokenizer()
    guest = Guest.drafting(PROMPT * 3, 0.5)
    plugged = {"plugins": PluginManager([("guest", guest)]), "draft_kind": "scripted"}

    def tokens(prompt: list[int], options: dict[str, Any], **more: Any) -> list[int]:
        responses = mlxfill.stream_generate(
            model, tokenizer, prompt, 6, eos_token_ids=(), engine_options=options, **more
        )
        return [response.token for response in islice(responses, 4 if more else 6)]

    def breaks_off(shown: mx.array, logits: mx.array) -> mx.array:
        if error is not None and len(shown) == len(PROMPT) + 2:
            raise error
        return logits

    options = {**plugged, "config": {"gate": {"enabled": False}}}
    with pytest.raises(error) if error else nullcontext():
        tokens(PROMPT, options, session="one", logits_processors=[breaks_off])
    assert guest.drafter is not None
    assert [rows.closed for rows in guest.drafter.opened] == [True]
    finishes = [event.data["finish_reason"] for event in guest.events if event.kind == "finish"]
    assert finishes == ["error" if error is MemoryError else "cancelled"]
    longer = [*PROMPT, *tokens(PROMPT, PLAIN), 5]
    assert tokens(longer, options, session="one") == tokens(longer, PLAIN)[:4]


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"draft_model": object()}, "engine_options"),
        ({"temperature_": 1}, "temperature_"),
        ({"max_tokens": -3}, "max_tokens"),
        ({"stop": "the"}, "stop"),
        ({"on_checkpoint": print, "checkpoint_every": 4}, "on_checkpoint"),
    ],
)
def test_wrong_keywords_are_named(wrong: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        list(
            mlxfill.stream_generate(
                shared_model("llama"), tiny_tokenizer(), PROMPT, engine_options=PLAIN, **wrong
            )
        )
