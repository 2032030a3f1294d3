"""A user's mistake gets one line that names the value and what would be legal."""

from __future__ import annotations

import copy
import math
import re
from typing import TYPE_CHECKING, Any

import attrs
import mlx.core as mx
import pytest
from mlx_lm.tokenizer_utils import TokenizerWrapper

import mlxfill
from mlxfill import (
    DrafterError,
    DraftKind,
    Engine,
    InputError,
    PluginError,
    TemplateError,
    load_config,
)
from mlxfill.plugins import PluginManager
from mlxfill_testing import (
    VOCAB,
    Guest,
    Script,
    ScriptedDrafter,
    engine_with,
    plain,
    plugged,
    shared_model,
    tiny_folder,
    tiny_tokenizer,
)

if TYPE_CHECKING:
    from mlxfill_testing.installed import FakeSite

PROMPT = [7, 30, 9]
CHAT = [{"role": "user", "content": "hi"}]


def refused(
    options: dict[str, Any], *named: str, prompt: Any = PROMPT, on_opening: bool = True
) -> None:
    """A ``ValueError`` of one line that holds every word of ``named``; ``check`` says the same."""
    with engine_with(shared_model("llama"), context=12) as engine:
        with pytest.raises(ValueError, match=r".") as caught:
            engine.generate(prompt, **options)
        message = str(caught.value)
        if on_opening:
            with pytest.raises(ValueError, match=re.escape(message)):
                engine.check(prompt, **options)
    assert isinstance(caught.value, InputError)
    assert "\n" not in message
    assert [word for word in named if word not in message] == []


# --- prompts ---------------------------------------------------------------------------------


def test_an_empty_prompt() -> None:
    nothing: list[Any] = [[], "", (), mx.array([], mx.int32)]
    for prompt in nothing:
        refused({}, "the prompt is empty", "at least one token", prompt=prompt)


def test_a_prompt_beyond_the_context() -> None:
    refused({}, "13 tokens", "context is 12", prompt=[5] * 13)
    with engine_with(shared_model("llama"), context=12) as engine:
        assert engine.generate([5] * 12, max_tokens=1).tokens


@pytest.mark.parametrize("wrong", [VOCAB, -1, 1 << 40])
def test_a_prompt_with_ids_beyond_the_vocabulary(wrong: int) -> None:
    refused({}, str(wrong), f"0 to {VOCAB - 1}", prompt=[1, wrong])


@pytest.mark.parametrize(
    ("prompt", "named"),
    [
        ([1, "two"], "'two'"),
        ([1.5], "1.5"),
        ([True], "True"),
        ([None], "None"),
        ([[1, 2]], "[1, 2]"),
        ([{"role": "user", "content": "hi"}, 3], "role"),
        (7, "int"),
        (None, "NoneType"),
        ({1, 2}, "set"),
    ],
)
def test_a_prompt_that_is_none(prompt: Any, named: str) -> None:
    refused({}, named, prompt=prompt)


def tool(**function: Any) -> list[dict[str, Any]]:
    return [{"type": "function", "function": {"name": "go", **function}}]


@pytest.mark.parametrize(
    ("tools", "said"),
    [
        ("go", "tools must be a list of tools, not 'go'"),
        ({}, "tools must be a list of tools, not {}"),
        ([3], "tool 0 must be a mapping like {...}, not 3"),
        ([None], "tool 0 must be a mapping like {...}, not None"),
        ([{}], "tool 0 has no function"),
        ([go := len], f"tool 0 must be a mapping like {{...}}, not {go!r}"),
        ([{"name": "x"}], "tool 0 has no function: it must be like {...}, not {'name': 'x'}"),
        (
            [*tool(), {"type": "functoin"}],
            "tool 1: type must be 'function', not 'functoin'; did you",
        ),
        (tool(name=3), "tool 0: function.name must be a name, not 3"),
        (tool(name=""), "tool 0: function.name must be a name, not ''"),
        (tool(description=[]), "tool 0: function.description must be a string, not []"),
        (
            tool(parameters=[]),
            "tool 0: function.parameters must be a JSON schema of an object, not []",
        ),
        (
            tool(parameters={"type": "objekt"}),
            "tool 0: function.parameters.type must be 'object', not 'objekt'; did you mean",
        ),
        (
            tool(parameters={"properties": ["q"]}),
            "tool 0: function.parameters.properties must be a mapping, not ['q']",
        ),
        ([*tool(), *tool()], "tool 1: another tool is named 'go' as well"),
    ],
)
def test_a_tool_that_no_template_can_use(tools: Any, said: str) -> None:
    for prompt in (CHAT, PROMPT):
        with engine_with(shared_model("llama")) as engine, pytest.raises(InputError) as caught:
            engine.check(prompt, tools=tools)
        like = '{"type": "function", "function": {"name": ...}}'
        assert str(caught.value).startswith(said.replace("{...}", like))


def test_tools_as_they_may_be() -> None:
    with engine_with(shared_model("llama")) as engine:
        for tools in (None, [], (), tool(), tool(parameters={}), [{"function": {"name": "go"}}]):
            assert engine.check(CHAT, tools=tools).ids


# --- options ---------------------------------------------------------------------------------

WRONG: list[tuple[str, Any, str]] = [
    ("max_tokens", -2, "at least -1"),
    ("max_tokens", 1.5, "whole number"),
    ("max_tokens", "10", "whole number"),
    ("max_tokens", True, "whole number"),
    ("max_tokens", None, "whole number"),
    ("prefill_step_size", None, "whole number"),
    ("temperature", -0.1, "0 to 1000000"),
    ("temperature", math.nan, "0 to 1000000"),
    ("temperature", math.inf, "0 to 1000000"),
    ("temperature", "warm", "0 to 1000000"),
    ("temperature", None, "0 to 1000000"),
    ("top_p", 1.1, "0 to 1"),
    ("top_p", -0.1, "0 to 1"),
    ("min_p", 2, "0 to 1"),
    ("top_k", -1, "at least 0"),
    ("top_k", 2.5, "whole number"),
    ("top_k", VOCAB, f"below the vocabulary size {VOCAB}"),
    ("min_tokens_to_keep", 0, "at least 1"),
    ("xtc_probability", 1.5, "0 to 1"),
    ("xtc_threshold", 0.6, "0 to 0.5"),
    ("seed", -1, "0 to 2**63 - 1"),
    ("seed", 1 << 63, "0 to 2**63 - 1"),
    ("seed", 1.0, "whole number"),
    ("repetition_penalty", -1, "at least 0"),
    ("repetition_penalty", "strong", "at least 0"),
    ("repetition_context_size", 0, "from 1 to 2147483647"),
    ("repetition_context_size", 1 << 31, "from 1 to 2147483647"),
    ("presence_penalty", math.nan, "-1000000 to 1000000"),
    ("frequency_penalty", "x", "-1000000 to 1000000"),
    ("logit_bias", {VOCAB: 1.0}, f"0 to {VOCAB - 1}"),
    ("logit_bias", {"a": 1.0}, "'a'"),
    ("logit_bias", {3: "much"}, "much"),
    ("logit_bias", {3: math.nan}, "nan"),
    ("logit_bias", [1, 2], "[1, 2]"),
    ("kv_bits", 5, "2, 3, 4, 6 or 8"),
    ("kv_bits", True, "2, 3, 4, 6 or 8"),
    ("kv_group_size", 48, "32, 64 or 128"),
    ("quantized_kv_start", -1, "at least 0"),
    ("max_kv_size", 0, "at least 1"),
    ("prefill_step_size", 0, "at least 1"),
    ("append_chunk", -1, "at least 0"),
    ("max_span", 1, "at least 2"),
    ("num_draft_tokens", -1, "at least 0"),
    ("top_logprobs", -1, "at least 0"),
    ("snapshot_at", 0, "at least 1"),
    ("snapshot_at", 3, "1 to 2"),
    ("stop", [""], "non-empty"),
    ("stop", [3], "strings"),
    ("stop", 3, "strings"),
    ("sources_policy", "maybe", "'trust' or 'verify'"),
    ("eos_token_ids", ["x"], "'x'"),
    ("eos_token_ids", 3, "3"),
    ("delimiters", ["x"], "'x'"),
    ("sampling", 3, "Sampling or a mapping"),
    ("sampling", {"heat": 1}, "heat"),
    ("sampling", {"\n": 1}, "sampling has no '\\n'"),
    ("sampling", {"temprature": 1}, "did you mean 'temperature'"),
    ("sampling", {1: 2}, "sampling has no 1"),
    ("xtc_special_tokens", 3, "a list of token ids, not 3"),
    ("xtc_special_tokens", ["a"], "a list of token ids, not ['a']"),
    ("temprature", 0.5, "did you mean 'temperature'"),
    ("cancel", 3, "3"),
    ("sampler", 3, "3"),
    ("logits_processors", [3], "3"),
    ("logits_processors", 3, "3"),
    ("session", "", "a name, not ''"),
    ("session", {"id": 1}, "a name, not {'id': 1}"),
    ("template_options", 3, "a mapping, not 3"),
    ("template_options", [["enable_thinking", True]], "a mapping"),
    ("input_embeddings", 0.5, "shape [L, H], not 0.5"),
    ("input_embeddings", mx.zeros((1, 2, 3)), "shape [L, H], not array([[[0, 0, 0], [0, 0, 0]]]"),
    ("cache", -1, "prompt cache, not -1"),
    ("cache", {"type": []}, "prompt cache"),
    ("cache", ["a", "b", "c", "d"], "prompt cache"),
    ("prompt_cache", "abc", "prompt cache, not 'abc'"),
    ("session", ["x"] * 999, "a name, not ['x', 'x'"),
    ("on_prefill_done", 3, "3"),
]


@pytest.mark.parametrize(
    ("name", "value", "legal"), WRONG, ids=[f"{name}-{value!r}" for name, value, _ in WRONG]
)
def test_an_option_that_is_not_legal(name: str, value: Any, legal: str) -> None:
    refused({name: value}, name, legal)


@pytest.mark.parametrize("name", ["eos_token_ids", "delimiters", "sources"])
def test_an_iterator_is_no_list_and_would_be_empty_when_it_is_looked_at_again(name: str) -> None:
    refused({name: iter([3])}, f"{name} must be a list of", "iterator")


def test_sampling_given_twice() -> None:
    refused({"sampling": {"seed": 1}, "temperature": 0.5}, "temperature", "not both")


def test_groups_that_do_not_fit_the_heads() -> None:
    """Keys of 16 numbers cannot be quantized in groups of 64."""
    options = {"kv_bits": 8, "kv_group_size": 64, "quantized_kv_start": 0}
    refused(options, "kv_group_size", "64", on_opening=False)


def test_a_ring_cannot_be_quantized() -> None:
    with (
        engine_with(shared_model("gemma3_text")) as engine,
        pytest.raises(InputError, match="kv_bits cannot be used with a rotating cache"),
    ):
        engine.check(PROMPT, kv_bits=8)
    with pytest.raises(InputError, match="kv_bits cannot be used with a rotating cache"):
        plain(shared_model("gemma3_text"), PROMPT, 2, kv_bits=8)


@pytest.mark.parametrize("name", ["qwen2", "qwen3_5"])
def test_a_bounded_cache_cannot_be_quantized(name: str) -> None:
    """Whatever the model makes of ``max_kv_size``."""
    options = {"kv_bits": 4, "kv_group_size": 32, "quantized_kv_start": 0, "max_kv_size": 8}
    with pytest.raises(InputError, match="kv_bits 4 cannot be used with max_kv_size 8: mlx-lm"):
        plain(shared_model(name), PROMPT, 2, **options)


def test_a_wrong_option_computes_nothing() -> None:
    """The error comes from ``stream`` itself, not from the first piece."""
    with engine_with(shared_model("llama")) as engine, pytest.raises(InputError):
        engine.stream(PROMPT, temperature=-1)


# --- chat templates --------------------------------------------------------------------------


def templated(template: str | None) -> Any:
    raw = copy.deepcopy(tiny_tokenizer()._tokenizer)
    raw.chat_template = template
    return TokenizerWrapper(raw)


BROKEN = {
    "syntax": "{% for %}",
    "raises": "{{ raise_exception('no system role') }}",
    "undefined": "{{ messages[7].content.x.y }}",
    "divides": "{{ 1 // 0 }}",
    "endless": "{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}",
}
HOSTILE = {
    "classes": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "globals": "{{ cycler.__init__.__globals__.os.system('true') }}",
    "writes": "{{ messages.append(messages[0]) }}",
    "imports": "{% import 'os' as os %}{{ os.getcwd() }}",
    "includes": "{% include '/etc/passwd' %}",
}


@pytest.mark.parametrize("template", [*BROKEN.values(), *HOSTILE.values()], ids=[*BROKEN, *HOSTILE])
def test_a_template_that_is_broken_or_hostile(template: str) -> None:
    model = shared_model("llama")
    messages = [dict(message) for message in CHAT]
    with (
        engine_with(model, tokenizer=templated(template)) as engine,
        pytest.raises(TemplateError, match="chat template refused the messages") as caught,
    ):
        engine.generate(messages)
    assert "\n" not in str(caught.value)
    assert messages == CHAT


def test_a_model_without_a_template() -> None:
    with (
        engine_with(shared_model("llama"), tokenizer=templated(None)) as engine,
        pytest.raises(TemplateError, match=r"no chat template.*plain prompt"),
    ):
        engine.generate(CHAT)


@pytest.mark.parametrize("tools", [1, True, 0.5, {1: 2}.keys()], ids=repr)
def test_tools_that_are_no_list(tools: Any) -> None:
    refused({"tools": tools}, "tools", "must be a list of tools")


def test_template_options_may_be_none() -> None:
    expected = plain(shared_model("llama"), CHAT, 5).tokens
    assert plain(shared_model("llama"), CHAT, 5, template_options=None).tokens == expected


# --- drafters --------------------------------------------------------------------------------


class Misfit(ScriptedDrafter):
    """A head for another model: it says so when it is loaded."""

    def kind(self, origin: str = "draft") -> DraftKind:
        def load(*_: Any) -> Any:
            raise DrafterError("the head has hidden size 32, the target 64")

        return attrs.evolve(super().kind(origin), load=load)


def test_a_drafter_that_does_not_fit_is_refused_and_the_model_given_back() -> None:
    model = shared_model("llama")
    before = [type(module) for _, module in model.named_modules()]
    guest = Guest(drafter=Misfit(script=Script(PROMPT, 1.0)))
    with pytest.raises(DrafterError, match="hidden size 32, the target 64"):
        engine_with(model, guest)
    assert [type(module) for _, module in model.named_modules()] == before


def test_a_kind_of_drafter_that_no_plugin_has() -> None:
    with pytest.raises(PluginError, match=r"'mtp'.*; pip install mlxfill-spec-qwen-mtp$"):
        engine_with(shared_model("llama"), draft_kind="mtp")
    with pytest.raises(PluginError, match=r"'foo' \(there are: none\)$"):
        engine_with(shared_model("llama"), draft_kind="foo")
    guest = Guest(drafter=ScriptedDrafter(script=Script(PROMPT, 1.0)))
    with pytest.raises(PluginError, match=r"\(there are: scripted\); did you mean 'scripted'\?$"):
        engine_with(shared_model("llama"), guest, draft_kind="scriptd")


def test_a_kind_that_two_plugins_have_is_asked_of_one_by_its_name() -> None:
    drafters = [Guest(drafter=ScriptedDrafter(script=Script(PROMPT, 1.0))) for _ in range(2)]
    twins = PluginManager([("two", drafters[1]), ("one", drafters[0])])
    model, tokenizer = shared_model("llama"), templated(None)
    said = r"'scripted' is claimed by the plugins one and two; .*: --draft-kind one$"
    with pytest.raises(PluginError, match=said):
        Engine(model, tokenizer, plugins=twins, draft_kind="scripted")
    with Engine(model, tokenizer, plugins=twins, draft_kind="one") as engine:
        assert engine.drafter is not None
        assert engine.drafter.plugin == "one"


def test_a_kind_of_a_plugin_that_is_off_is_switched_on_first(site: FakeSite) -> None:
    site.add("zz-draft")
    plugins = PluginManager.load(load_config({}), [])
    said = r"draft kind 'zz-draft' .*; zz-draft is installed, but off: list it in"
    with pytest.raises(PluginError, match=said):
        Engine(shared_model("llama"), templated(None), plugins=plugins, draft_kind="zz-draft")


def test_a_drafter_where_none_can_read_it(tmp_path: Any) -> None:
    with pytest.raises(PluginError, match="no plugin that is on can draft with"):
        engine_with(shared_model("llama"), draft=tiny_folder(tmp_path / "model"))


@pytest.mark.parametrize("wrong", [-1, 1.5, "4", True])
def test_a_number_of_drafts_that_is_none(wrong: Any) -> None:
    with pytest.raises(InputError, match="num_draft_tokens must be 0 or more"):
        engine_with(shared_model("llama"), Guest.drafting(PROMPT, 1.0), num_draft_tokens=wrong)


def test_a_plugin_that_raises_does_not_reach_the_caller() -> None:
    def broken(_: Any) -> Any:
        raise RuntimeError("inside a plugin")

    result = plugged(shared_model("llama"), Guest(sources=[broken]), PROMPT, 4)
    raised = broken.__code__.co_firstlineno + 1
    assert [fault.message for fault in result.faults] == [
        f"RuntimeError: inside a plugin (test_bad_input.py, line {raised})"
    ]
    assert len(result.tokens) == 4


def test_errors_are_what_python_programmers_expect() -> None:
    assert issubclass(mlxfill.InputError, ValueError)
    assert issubclass(mlxfill.ModelNotFoundError, FileNotFoundError)
    assert issubclass(mlxfill.BackendMissingError, ImportError)
