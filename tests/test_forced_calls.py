"""Calls that a request forces, in the form of every family whose calls are read."""

from __future__ import annotations

import json
import random
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import mlx.core as mx
import numpy as np
import pytest

import mlxfill
import mlxfill_model_tiny
import mlxfill_serve
from mlxfill import Schema, TemplateError, load_tokenizer
from mlxfill.tool_calls import call_form
from mlxfill.tool_calls.sections import calls_alone
from mlxfill_constrain import Vocabulary
from mlxfill_serve.callgrammar import CallGrammar
from patience import AT_ALL

mx.set_default_device(mx.cpu)

HERE = Path(__file__).parent
STRICT = HERE.parent / "plugins" / "fill_strict" / "tests"
MARKUP: dict[str, list[str]] = json.loads((STRICT / "markup.json").read_text("utf-8"))
MARKUP |= {
    "gemma4": ["<|tool_call>", "<tool_call|>", '<|"|>'],
    "kimi_k3": ["<|open|>", "<|close|>", "<|sep|>"],
    "longcat": ["<longcat_tool_call>", "</longcat_tool_call>", "<longcat_arg_value>"],
}
PARSERS: dict[str, str | None] = {
    "actions": None,
    "channels": None,
    "deepseek": None,
    "dsml": None,
    "keyed": None,
    "listed": None,
    "llama_json": None,
    "mistral_ids": None,
    "seed": None,
    "gemma": "function_gemma",
    "gemma4": "gemma4",
    "glm": "glm47",
    "hermes": "json_tools",
    "kimi": "kimi_k2",
    "kimi_k3": "kimi_k3",
    "longcat": "longcat",
    "minicpm5": "minicpm5",
    "minimax": "minimax_m2",
    "mistral": "mistral",
    "mistral_args": "mistral",
    "muse_spark": "muse_spark",
    "pythonic": "pythonic",
    "qwen3_coder": "qwen3_coder",
    "thinking_xml": "qwen3_coder",
}
"""Families by their templates, and mlx-lm's parser of each; None: it has none, or a wrong one."""
ONE_CALL = {"channels", "llama_json"}
"""Families that make one call a reply."""
TINY = Path(mlxfill_model_tiny.__file__).parent / "models" / "target"


def tool(name: str, required: list[str], /, **properties: Any) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": properties, "required": required}
    schema["additionalProperties"] = False
    return {"type": "function", "function": {"name": name, "parameters": schema}}


TOOLS = [
    tool(
        "read_file",
        ["path"],
        path={"type": "string", "maxLength": 12},
        lines={"type": "integer", "minimum": 1, "maximum": 99},
        deep={"type": "boolean"},
    ),
    tool(
        "read",
        [],
        mode={"enum": ["fast", "slow one"]},
        at={"anyOf": [{"type": "integer", "maximum": 9, "minimum": 0}, {"type": "null"}]},
    ),
    tool("stop", []),
    tool(
        "pair",
        ["a", "b"],
        a={"$ref": "#/$defs/digit"},
        b={"type": "string", "minLength": 1, "maxLength": 6},
    ),
]
TOOLS[3]["function"]["parameters"]["$defs"] = {
    "digit": {"type": "integer", "minimum": 0, "maximum": 9}
}
SCHEMAS = {each["function"]["name"]: each["function"]["parameters"] for each in TOOLS}


def made(folder: Path, family: str) -> Path:
    """The tiny model with the chat template of a family."""
    shutil.copytree(TINY, folder)
    shutil.copy(STRICT / "templates" / f"{family}.jinja", folder / "chat_template.jinja")
    settings = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))
    settings["tool_parser_type"] = PARSERS.get(family)
    if family == "llama_json":  # nothing but the end of the reply ends a call
        settings["eos_token"] = "<|eot_id|>"  # noqa: S105 - a token, no secret
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), "utf-8")
    return folder


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return cache(lambda family: made(tmp_path_factory.mktemp("families") / family, family))


def legal(calls: list[tuple[str, Any]]) -> bool:
    for name, arguments in calls:
        jsonschema.validate(arguments, SCHEMAS[name])
    return bool(calls)


# --- any reply that the grammar allows ------------------------------------------------------


def random_reply(tokenizer: Any, grammar: str, draw: random.Random) -> str:
    """What a model without any sense would write, but for its wish to come to an end."""
    vocabulary = Vocabulary.of(tokenizer, frozenset(tokenizer.eos_token_ids))
    matcher = vocabulary.matcher(Schema("lark", grammar), "spaced")
    ends = [at for at in range(len(tokenizer.get_vocab())) if _ends(tokenizer, at)]
    ids: list[int] = []
    while not matcher.is_stopped():
        forced = matcher.compute_ff_tokens()
        if forced:
            assert matcher.try_consume_tokens(forced) == len(forced)
            ids += forced
            continue
        if matcher.is_accepting() and draw.random() < 0.5:
            break
        bits = np.frombuffer(matcher.compute_bitmask(), np.uint8)
        allowed = set(np.unpackbits(bits, bitorder="little").nonzero()[0].tolist())
        allowed -= set(tokenizer.eos_token_ids)
        if not allowed:
            assert matcher.is_accepting()
            break
        wanted = sorted(allowed & set(ends)) if draw.random() < 0.5 else []
        token = draw.choice(wanted or sorted(allowed))
        assert matcher.consume_token(token)
        ids.append(token)
    return str(tokenizer.decode(ids, skip_special_tokens=False))


def _ends(tokenizer: Any, token: int) -> bool:
    return tokenizer.decode([token]).strip()[:1] in {"<", '"', "}", ")", "]"}


@pytest.mark.parametrize("special", [True, False], ids=["tokens", "text"])
@pytest.mark.parametrize("family", PARSERS)
def test_whatever_the_grammar_allows_is_calls_with_legal_arguments(
    folder_of: Any, family: str, *, special: bool
) -> None:
    tokenizer: Any = load_tokenizer(folder_of(family))
    if special and family in MARKUP:
        tokenizer.add_tokens(MARKUP[family], special_tokens=True)
    form = call_form(tokenizer, {})
    added = {token.content: at for at, token in tokenizer.added_tokens_decoder.items()}
    draw = random.Random(family)
    assert form.bare_end or not form.values
    for several in (True, False):
        grammar = CallGrammar(form, added).written(TOOLS, several=several)
        sizes, names = set(), set()
        for _ in range(12):
            reply = random_reply(tokenizer, grammar, draw)
            calls = calls_alone(tokenizer, TOOLS, reply)
            assert legal(calls), reply
            sizes.add(len(calls))
            names |= {name for name, _ in calls}
        assert (max(sizes) > 1) is (several and family not in ONE_CALL)
        assert len(names) > 1


# --- by way of the server ---------------------------------------------------------------------


@pytest.mark.parametrize("family", ["qwen3_coder", "kimi"])
def test_a_server_makes_the_calls_that_are_asked_for(folder_of: Any, family: str) -> None:
    def loading() -> mlxfill.Engine:
        plugins = ["fill-strict", "spec-ngram", "constrain"]
        return mlxfill.load(folder_of(family), plugins=plugins, config={})

    body: dict[str, Any] = {
        "messages": [{"role": "user", "content": "Go on."}],
        "tools": TOOLS,
        "max_tokens": 300,
        "temperature": 1.0,
    }
    with (
        mlxfill_serve.serving(loading) as server,
        httpx.Client(base_url=server.url, timeout=AT_ALL, trust_env=False) as http,
    ):

        def calls(**more: Any) -> list[tuple[str, Any]]:
            answer = http.post("/v1/chat/completions", json={**body, **more})
            assert answer.status_code == 200, answer.text
            (choice,) = answer.json()["choices"]
            assert choice["finish_reason"] == "tool_calls", choice
            assert not choice["message"]["content"]
            functions = [call["function"] for call in choice["message"]["tool_calls"]]
            return [(each["name"], json.loads(each["arguments"])) for each in functions]

        for seed in (1, 2):
            assert legal(calls(tool_choice="required", parallel_tool_calls=False, seed=seed))
        for name, schema in SCHEMAS.items():
            wanted = {"type": "function", "function": {"name": name}}
            ((called, arguments),) = calls(tool_choice=wanted, seed=3)
            assert called == name
            jsonschema.validate(arguments, schema)


# --- where it cannot be done --------------------------------------------------------------------


@pytest.mark.parametrize("family", ["llama_python_tag", "silent", "raising", "listed_arguments"])
def test_a_template_without_calls_that_mlx_lm_reads_is_told_so(folder_of: Any, family: str) -> None:
    with pytest.raises(TemplateError):
        call_form(load_tokenizer(folder_of(family)), {})


def test_an_argument_that_no_template_of_its_kind_writes_is_named(folder_of: Any) -> None:
    tokenizer: Any = load_tokenizer(folder_of("gemma"))
    form = call_form(tokenizer, {})
    nested = [tool("save", ["record"], record={"type": "object"})]
    with pytest.raises(TemplateError, match="'record' of 'save'"):
        CallGrammar(form, {}).written(nested, several=True)
    left_out = [tool("save", [], record={"type": "object"}, name={"type": "string"})]
    assert '"record"' not in CallGrammar(form, {}).written(left_out, several=True)
