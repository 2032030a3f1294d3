"""What is fuzzed: each target takes bytes, and only errors of mlxfill's own may come out.

A target returns for whatever is legal or refused as it should be, and raises ``WrongError``, or
lets through what it met, for everything else.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import struct
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from fuzz_mutations import Mutator, of_json, of_words
from mlxfill import (
    Checkpoint,
    ConfigError,
    Engine,
    MlxfillError,
    PluginError,
    load,
    load_config,
)

MESSAGES = [{"role": "user", "content": "Where is send_key used?"}]
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "search_code",
            "parameters": {
                "type": "object",
                "properties": {"query": {"type": "string"}},
                "required": ["query"],
                "additionalProperties": False,
            },
        },
    }
]
TEMPLATE = (
    "{% if tools %}{% for t in tools %}{{ t | tojson }}{% endfor %}{% endif %}"
    "{% for m in messages %}<user>{{ m.content }}{% for c in m.tool_calls or [] %}"
    '{"name": {{ c.function.name }}, "arguments": {{ c.function.arguments | tojson }}}'
    "{% endfor %}<end>{% endfor %}{% if add_generation_prompt %}<reply>{% endif %}"
)
SOURCES = ("fill-strict", "fill-echo", "spec-ngram", "constrain")
FREE: dict[str, Any] = {"gate": {"enabled": False}, "cache": {"max_entries": 0}}
SERVER_ERROR = 500
UNEXPECTED = "(--debug shows where)"
"""How the command line ends the line of an error that it did not expect."""
OPTIONS = (
    *("top_p", "min_p", "min_tokens_to_keep", "xtc_probability", "xtc_special_tokens", "sampling"),
    *("repetition_penalty", "repetition_context_size", "logit_bias", "stop", "logprobs", "session"),
    *("top_logprobs", "prefill_step_size", "max_kv_size", "kv_group_size", "append_chunk", "cache"),
    *("max_span", "num_draft_tokens", "prompt_cache", "on_prefill_done", "cancel", "eos_token_ids"),
    *(
        "input_embeddings",
        "sampler",
        "logits_processors",
        "sources_policy",
        "sources",
        "delimiters",
    ),
    *("checkpoint_every", "on_checkpoint", "template_options", "schema", "adapters", "tools"),
)
"""Each is tried with a number, and then with whatever that is changed into."""
CLI_WORDS = (
    *("generate", "resume", "chat", "audit", "plugins", "list", "info", "new", "config", "show"),
    *("check", "tune", "mtp", "split", "--model", "tiny", "--max-tokens", "2", "--json", "--raw"),
    *("--temperature", "--seed", "--stop", "--schema", "--regex", "--draft", "tiny-draft", "--"),
    *("--plugins", "spec-ngram", "--no-plugins", "--origins", "--config", "--help", "--version"),
    *("--checkpoint", "--tools", "--messages", "hello", "-2", "1e9", "nan", "", "{}", "[]"),
)
TEMPLATE_WORDS = (
    *(
        "{% for a in messages %}",
        "{% for a in tools %}",
        "{% for a in range(99) %}",
        "{% endfor %}",
    ),
    *("{% if a %}", "{% if tools is none %}", "{% else %}", "{% endif %}", "{% break %}"),
    *("{% macro f(a, b=f) %}", "{% endmacro %}", "{{ f(f) }}", "{% call f() %}", "{% endcall %}"),
    *("{% set a = messages %}", "{% set n = namespace(a=n) %}", "{% set n.a = 'x' * 9999 %}"),
    *("{{ a }}", "{{ a.role }}", "{{ a[0]['content'][::-1] }}", "{{ n.a }}", "{{ loop.previtem }}"),
    *(
        "{{ tools | tojson(indent=2) }}",
        "{{ a | tojson }}",
        "{{ f | tojson }}",
        "{{ messages.x.y }}",
    ),
    *("{{ '%d' % a }}", "{{ a + 1 }}", "{{ 1 / 0 }}", "{{ 9 ** 9 ** 4 }}", "{{ a | join(1) }}"),
    *("{{ a.__class__.__mro__ }}", "{{ messages | map(attribute='x') | list }}", "{{ self }}"),
    *(
        "{% generation %}",
        "{% endgeneration %}",
        "{{ strftime_now(a) }}",
        "{{ raise_exception(a) }}",
    ),
    *("<user>", "<end>", "<reply>", "{#", "#}", "{% raw %}", "{% endraw %}", "{{", "}}"),
)
BUSY = frozenset({"serve", "bench", "demo", "doctor"})
"""Commands that listen, or take their time."""


class WrongError(AssertionError):
    """Something came out that should not."""


@dataclass(frozen=True)
class Target:
    """``run`` takes any bytes.  ``seeds``: to begin with; ``words``: worth to be put in.

    ``mutator``: makes what changes inputs so that they stay readable; None: libFuzzer's own.
    """

    run: Callable[[bytes], None]
    seeds: tuple[bytes, ...]
    words: tuple[str, ...] = ()
    mutator: Callable[[Sequence[str]], Mutator] | None = None


@contextlib.contextmanager
def only_ours() -> Iterator[None]:
    """Let errors of mlxfill pass that say something in a line."""
    try:
        yield
    except MlxfillError as error:
        several = isinstance(error, ConfigError | PluginError)  # a line for each mistake
        if not str(error).strip() or ("\n" in str(error) and not several):
            raise WrongError(f"{type(error).__name__} says {str(error)!r}") from error


# --- what the targets work with -------------------------------------------------------------


@cache
def place() -> Path:
    """A folder for files, the working folder from now on; no config is found from here."""
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    os.environ.update(HOME=str(folder), XDG_CONFIG_HOME=str(folder), XDG_CACHE_HOME=str(folder))
    os.chdir(folder)
    return folder


@cache
def tiny() -> Engine:
    """The tiny model with all sources."""
    place()
    return load("tiny", plugins=SOURCES, config=FREE)


@cache
def templated() -> Engine:
    """A random model whose template changes."""
    from mlxfill_testing import shared_model, tiny_tokenizer

    own = tiny_tokenizer.__wrapped__()  # the one that is kept belongs to everybody
    return Engine(shared_model("llama"), own, plugins=SOURCES, config=FREE)


@cache
def stored() -> Checkpoint:
    """A checkpoint of ``templated``."""
    left: list[Checkpoint] = []
    templated().generate([7, 30, 9, 30, 11, 4], max_tokens=9, on_checkpoint=left.append)
    return left[-1]


def as_json(data: bytes) -> Any:  # noqa: ANN401
    """The value of JSON text, None for everything else."""
    with contextlib.suppress(ValueError, RecursionError):
        return json.loads(data)
    return None


def opened(engine: Engine, prompt: Any, **options: Any) -> None:  # noqa: ANN401 - whatever comes
    """Open a request and close it: nothing may be charged to a plugin."""
    run = engine.stream(prompt, **options)
    run.close()
    if run.faults:
        raise WrongError(f"faults: {run.faults}")


# --- the targets ----------------------------------------------------------------------------


def config(data: bytes) -> None:
    """A config file, and the settings of the plugins in it."""
    from mlxfill.plugins import PluginManager

    path = place() / "any.toml"
    path.write_bytes(data)
    with only_ours():
        manager = PluginManager.load(load_config(path, environ={}))
        if any(
            "Error" in fault.message and "ConfigError" not in fault.message
            for fault in manager.faults
        ):
            raise WrongError(f"faults: {manager.faults}")


def tools(data: bytes) -> None:
    """Tools: compiled by fill-strict, and asked for over HTTP."""
    value = as_json(data)
    with only_ours():
        opened(tiny(), MESSAGES, tools=value, max_tokens=1)
    posted("/v1/chat/completions", {"messages": MESSAGES, "tools": value, "max_tokens": 1})


def template(data: bytes) -> None:
    """A chat template, which renders messages and tools; fill-strict asks it many times."""
    engine = templated()
    engine.tokenizer.chat_template = data.decode("utf-8", "replace")
    with only_ours():
        opened(engine, MESSAGES, tools=TOOLS, max_tokens=1)


def messages(data: bytes) -> None:
    """A prompt of any JSON, and the body of a request."""
    value = as_json(data)
    body = value if isinstance(value, dict) else {"messages": value}
    with only_ours():
        opened(tiny(), body.get("messages", value), tools=body.get("tools"), max_tokens=1)
    posted("/v1/chat/completions", data)
    posted("/v1/completions", {**body, "prompt": body.get("prompt", value)})


def schema(data: bytes) -> None:
    """What a reply is to be held to, from compiling to a few tokens."""
    with only_ours():
        result = tiny().generate("As JSON: ", schema=as_json(data), max_tokens=6, seed=1)
        if result.faults:
            raise WrongError(f"faults: {result.faults}")


def options(data: bytes) -> None:
    """Options of a request by any JSON object."""
    value = as_json(data)
    if not isinstance(value, dict):
        return
    held = {"checkpoint", "max_tokens"}  # files at any path, replies of any length
    with only_ours():
        opened(tiny(), MESSAGES, **{k: v for k, v in value.items() if k not in held})


def checkpoint(data: bytes) -> None:
    """A file that is no checkpoint, or one whose seal is right and whose content is not."""
    path = place() / "stored.safetensors"
    how, data = data[:1], data[1:]
    if how == b"c":
        content = as_json(data)
        if not isinstance(content, dict):
            return
        whole = Checkpoint({**stored().content, **content}, stored().arrays)
        whole.save(path)
    else:
        path.write_bytes(sealed(data) if how == b"s" else data)
    before = path.read_bytes()
    with only_ours():
        run = templated().resume(path)
        for _, _ in zip(run, range(3), strict=False):
            pass
        run.close()
    if path.read_bytes() != before and how != b"c":
        raise WrongError("the file was changed")


def weights(data: bytes) -> None:
    """The weights of a model and of an adapter: the file is read, or refused by its name."""
    from mlxfill.loading.model import check_files

    folder = place() / "model"
    folder.mkdir(exist_ok=True)
    how, data = data[:1], data[1:]
    names = {b"c": "config.json", b"i": "model.safetensors.index.json"}
    (folder / "config.json").write_text('{"model_type": "llama"}', "utf-8")
    (folder / "model.safetensors").write_bytes(SAFE)
    (folder / "model.safetensors.index.json").unlink(missing_ok=True)
    (folder / names.get(how, "model.safetensors")).write_bytes(data)
    with only_ours():
        check_files(folder)


def arguments(data: bytes) -> None:
    """A command line.  Its files are in an empty folder; what listens is left out."""
    from mlxfill.cli.run import main

    place()
    line = data.decode("utf-8", "replace").replace("\0", "").split("\n")[:12]
    if BUSY & set(line) or any("/" in word or ".." in word for word in line):
        return
    if line[0] in {"generate", "chat", "audit", "resume"}:  # replies are short, unless asked for
        line.insert(1, "--max-tokens=2")
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.chdir(folder),
        tempfile.TemporaryFile("w+") as out,
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as err,
        tempfile.TemporaryFile("w+") as given,
    ):
        given.write("Hello\n")
        given.seek(0)
        streams = contextlib.redirect_stdout(out), contextlib.redirect_stderr(err)
        with streams[0], streams[1], _standard_input(given):
            code = main(line)
        err.seek(0)
        said = err.read()
    if code not in {0, 1, 2} or UNEXPECTED in said or "Traceback" in said:
        raise WrongError(f"{line} ends with {code}: {said}")


@contextlib.contextmanager
def _standard_input(given: Any) -> Iterator[None]:  # noqa: ANN401 - a text file
    import sys

    held, sys.stdin = sys.stdin, given
    try:
        yield
    finally:
        sys.stdin = held


# --- over HTTP, without a socket --------------------------------------------------------------


@cache
def _server() -> tuple[asyncio.Runner, Any, Any]:
    import httpx

    from mlxfill_serve import EngineThread, ServeSettings, make_app

    place()
    settings = ServeSettings(rows=2, max_tokens=2, max_choices=2)
    worker = EngineThread(lambda: load("tiny", plugins=SOURCES, config=FREE), settings=settings)
    worker.start()
    app = make_app(worker, name="tiny", settings=settings)
    transport = httpx.ASGITransport(app)
    client = httpx.AsyncClient(transport=transport, base_url="http://localhost")
    return asyncio.Runner(), client, worker


def close() -> None:
    """Give back what was opened."""
    if _server.cache_info().currsize:
        runner, client, worker = _server()
        runner.run(client.aclose())
        runner.close()
        worker.stop()
    for made in (tiny, templated):
        if made.cache_info().currsize:
            made().close()
    for kept in (_server, tiny, templated, stored, place):
        kept.cache_clear()


def posted(path: str, body: bytes | Mapping[str, Any]) -> None:
    """Ask the server: it answers, or refuses in a line."""
    runner, client, _ = _server()
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    response = runner.run(client.post(path, content=raw))
    if response.status_code >= SERVER_ERROR:
        raise WrongError(f"{path} answers {response.status_code}: {response.text[:500]}")
    if response.is_error and "\n" in response.json()["error"]["message"]:
        raise WrongError(f"{path} says more than a line: {response.text}")


# --- files ----------------------------------------------------------------------------------


def safetensors(header: Mapping[str, Any], body: bytes = b"") -> bytes:
    """A file of the format."""
    text = json.dumps(header, separators=(",", ":")).encode()
    return struct.pack("<Q", len(text)) + text + body


def sealed(data: bytes) -> bytes:
    """A file with any tensors whose seal fits; the metadata is put in where there is none."""
    from hashlib import sha256

    split = data.find(b"}}") + 2
    tensors, body = as_json(data[:split]), data[split:]
    metadata = {"digest": "0" * 64, "finished": "false", "format": "mlxfill checkpoint"}
    header = {"__metadata__": {**metadata, "version": "1"}}
    whole = safetensors({**header, **(tensors if isinstance(tensors, dict) else {})}, body)
    return whole.replace(b"0" * 64, sha256(whole).hexdigest().encode(), 1)


SAFE = safetensors({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, b"\0" * 4)
CONTENT = {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]}
JSON_WORDS = ("null", "true", "-1", "1e999", "[]", "{}", '"\\ud800"', '"type"', '"function"')

TARGETS = {
    "config": Target(
        config,
        (
            b'plugins = ["fill-echo"]\nmodel = "tiny"\n[generation]\nmax_tokens = 4\n',
            b"[plugins.fill-echo]\nk = 8\n[plugins.spec-ngram]\nmatch = 'first'\n",
            b"[trust]\nassert = ['x']\n[cache]\nmax_mb = 1\n[gate]\nenabled = true\n",
            b"[plugins.serve]\nport = 1\nadapters.a = 'b'\norigins = ['*']\n",
        ),
        ("plugins", "enabled", "fill-strict", "constrain", "inf", "nan", "1979-05-27", "'''"),
    ),
    "tools": Target(
        tools,
        (json.dumps(TOOLS).encode(), b'[{"name": "x", "parameters": {"properties": {"a": {}}}}]'),
        (*JSON_WORDS, '"parameters"', '"properties"', '"required"', '"$ref"', '"enum"', '"const"'),
        of_json,
    ),
    "template": Target(
        template,
        (
            TEMPLATE.replace("%}", "%}\n").encode(),
            b"{{ messages[0].content }}",
            b"{{ raise_exception('no') }}",
            b"{% macro a(b) %}{{ b }}{% endmacro %}{{ a(tools) }}{{ strftime_now('%Y') }}",
        ),
        TEMPLATE_WORDS,
        of_words,
    ),
    "messages": Target(
        messages,
        (
            json.dumps({"messages": MESSAGES, "tools": TOOLS}).encode(),
            (
                b'{"messages": [{"role": "assistant", "tool_calls": [{"id": "a", "function":'
                b' {"name": "x", "arguments": "{}"}}]}, {"role": "tool", "content": "1"}]}'
            ),
            (
                b'{"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]}],'
                b' "n": 2, "stop": ["a"], "logprobs": true, "response_format": {"type": "text"}}'
            ),
            b'{"prompt": [1, 2], "echo": true, "logprobs": 1, "stream": true}',
        ),
        (*JSON_WORDS, '"role"', '"content"', '"stream"', '"n"', '"mlxfill"', '"tool_choice"'),
        of_json,
    ),
    "schema": Target(
        schema,
        (
            b'{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}',
            b'{"regex": "[a-z]{1,3}"}',
            b'{"lark": "start: \\"a\\" | B\\nB: /[0-9]+/"}',
            b'{"enum": [1, null, "x"]}',
        ),
        (*JSON_WORDS, '"anyOf"', '"$ref"', '"#"', '"pattern"', '"maxLength"', '"items"', '"const"'),
        of_json,
    ),
    "options": Target(
        options,
        (
            b'{"temperature": 0.5, "seed": 1, "stop": ["x"], "top_k": 3, "logit_bias": {"1": 2}}',
            b'{"session": "a", "sources": ["spec-ngram"], "eos_token_ids": [1], "kv_bits": 8}',
            b'{"snapshot_at": 3, "cache": [], "template_options": {"enable_thinking": true}}',
            *(json.dumps({name: 1}).encode() for name in OPTIONS),
        ),
        (*JSON_WORDS, '"sampling"', '"tools"', '"adapters"', '"input_embeddings"', '"schema"'),
        of_json,
    ),
    "checkpoint": Target(
        checkpoint,
        (
            b"f" + SAFE,
            b'c{"ending": null, "caches": null, "request": {"options": {}}}',
            b"s" + json.dumps({"content": CONTENT}).encode() + b"{}",
        ),
        (*JSON_WORDS, '"data_offsets"', '"shape"', '"dtype"', '"BF16"', '"draft"', '"tally"'),
        of_json,
    ),
    "weights": Target(
        weights,
        (b"w" + SAFE, b'c{"model_type": "llama"}', b'i{"weight_map": {"a": "model.safetensors"}}'),
        (*JSON_WORDS, '"weight_map"', '"model_type"', '"data_offsets"'),
        of_json,
    ),
    "arguments": Target(
        arguments,
        (
            b"generate\n--model\ntiny\n--max-tokens\n2\nhello",
            b"plugins\ninfo\nspec-ngram",
            b"config\ncheck",
            b"resume\nx",
            b"chat\n--model\ntiny",
        ),
        CLI_WORDS,
        of_words,
    ),
}
