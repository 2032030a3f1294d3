from __future__ import annotations

import json
import tomllib
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from mlxfill_fill_escaped.plugin import EscapedSettings, mlxfill_proposal_sources

import mlxfill
from mlxfill_testing import check_proposal_source, tiny_request

PATH = 'open "C:\\new files\\table.txt" & tell me what it says'


def test_it_keeps_the_contract_and_changes_no_output() -> None:
    factory = partial(mlxfill_proposal_sources, settings=EscapedSettings(match=1))
    assert check_proposal_source(factory, name="fill-escaped").offers > 0


@pytest.fixture(scope="module")
def engine() -> Any:
    with mlxfill.load("tiny", plugins=[], config={}) as engine:
        yield engine


def offer(engine: Any, prompt: str, reply: str, **settings: Any) -> str:
    """What is offered after the reply, as text."""
    request = tiny_request(prompt, tokenizer=engine.tokenizer)
    found = mlxfill_proposal_sources(request, EscapedSettings(**settings))
    tokens = [*request.prompt_ids, *engine.tokenizer.encode(reply, add_special_tokens=False)]

    class View:
        length, budget = len(tokens), 100

        def tail(self, n: int) -> list[int]:
            return tokens[-n:]

    proposals = [source.propose(View()) for source in found]
    return "".join(engine.tokenizer.decode(list(p.ids)) for p in proposals if p)


@pytest.mark.parametrize(
    ("form", "escape"),
    [("json", lambda text: json.dumps(text)[1:-1]), ("url", quote)],
    ids=["json", "url"],
)
def test_an_escaped_copy_is_offered(engine: Any, form: str, escape: Any) -> None:
    whole = escape(PATH)
    at = whole.index("files") + len("files")
    offered = offer(engine, PATH, whole[:at], forms=[form], longest=200)
    assert offered
    assert whole[at:].startswith(offered[:6])


def test_nothing_is_offered_where_escaping_changes_nothing(engine: Any) -> None:
    assert offer(engine, "plain", "plain", match=1, forms=["json"]) == ""


def test_an_offer_has_its_most(engine: Any) -> None:
    text = quote(PATH)
    short = offer(engine, PATH, text[:12], forms=["url"], longest=2)
    assert 0 < len(engine.tokenizer.encode(short, add_special_tokens=False)) <= 2


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"match": 0}, "match must be a whole number of at least 1, not 0"),
        ({"longest": 1}, "longest must be a whole number of at least 2, not 1"),
        ({"forms": ["xml"]}, "forms must be 'json' or 'url', not 'xml'"),
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(mlxfill.InputError, match=f"^{said}$"):
        EscapedSettings(**wrong)


def test_the_config_in_the_readme_is_legal() -> None:
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    block = readme.split("```toml\n")[1].split("```")[0]
    config = mlxfill.load_config(tomllib.loads(block))
    assert "fill-escaped" in (config.plugins.enabled or ())
    assert config.plugin_settings("fill-escaped", EscapedSettings) == EscapedSettings()


def test_a_reply_is_the_same_with_it(tiny_engine: Any) -> None:
    class Plugin:
        name = "fill-escaped"
        drafter = None

        @mlxfill.hookimpl
        def mlxfill_proposal_sources(self, request: mlxfill.Request) -> Any:
            return mlxfill_proposal_sources(request, EscapedSettings(match=1))

    prompt = [5, 9, 40, 9, 5, 41, 9]
    result = tiny_engine(Plugin()).generate(prompt, **tiny_engine.options)
    assert result.faults == []
    if tiny_engine.kind.exact:
        assert result.tokens == tiny_engine.plain(prompt).tokens
