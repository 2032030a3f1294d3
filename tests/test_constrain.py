"""constrain with the other plugins, on the tiny model: the schema holds, the reply is the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import mlx.core as mx
import pytest

import mlxfill
from mlxfill.cli import main
from mlxfill_model_tiny import Ask, held_out_asks

# Windows and steps are bit-identical on the CPU with the BLAS of the wheel, not on every GPU.
mx.set_default_device(mx.cpu)

CALL = {
    "type": "object",
    "properties": {
        "tool": {"type": "string", "pattern": "^[a-z_]{3,16}$"},
        "arguments": {
            "type": "object",
            "properties": {"path": {"type": "string", "maxLength": 24}},
            "required": ["path"],
            "additionalProperties": False,
        },
        "confirmed": {"type": "boolean"},
    },
    "required": ["tool", "arguments", "confirmed"],
    "additionalProperties": False,
}
NO_THINKING: dict[str, Any] = {"template_options": {"enable_thinking": False}}
COMPANY: dict[str, dict[str, Any]] = {
    "alone": {},
    "fills": {"plugins": ["fill-strict", "fill-echo", "constrain"]},
    "lookup": {"plugins": ["spec-ngram", "constrain"]},
    "draft model": {"plugins": ["constrain", "spec-two-model"], "draft": "tiny-draft"},
    "head": {"plugins": ["spec-qwen-mtp", "constrain", "spec-ngram"], "draft": "tiny-mtp"},
    "all, no forced tokens": {
        "plugins": ["fill-strict", "fill-echo", "spec-ngram", "constrain", "spec-two-model"],
        "draft": "tiny-draft",
        "forced": False,
    },
}


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is read from or written to the user's own folders."""
    for variable in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def ask() -> Ask:
    return held_out_asks(1)[0]


@pytest.fixture(scope="module")
def unforced() -> Iterator[mlxfill.Engine]:
    """Nothing but the mask."""
    with engine(forced=False) as loaded:
        yield loaded


def engine(*, forced: bool = True, **options: Any) -> mlxfill.Engine:
    config = {"gate": {"enabled": False}, "plugins": {"constrain": {"forced": forced}}}
    return mlxfill.load("tiny", config=config, **{"plugins": ["constrain"], **options})


def test_a_space_at_the_beginning_belongs_to_the_reply(unforced: mlxfill.Engine) -> None:
    with engine() as forcing:
        for each in (unforced, forcing):
            result = each.generate("Is it?", schema={"regex": " yes"}, max_tokens=8)
            assert result.text == each.tokenizer.decode(result.tokens) == " yes"


@pytest.mark.parametrize("company", COMPANY)
def test_a_reply_is_the_same_in_any_company(
    unforced: mlxfill.Engine, ask: Ask, company: str
) -> None:
    with engine(**COMPANY[company]) as loaded:
        for temperature, thinking in ((0.0, False), (0.8, False), (0.0, True)):
            options: dict[str, Any] = {
                "tools": ask.tools,
                "schema": CALL,
                "temperature": temperature,
                "seed": 3,
                "max_tokens": 160,
                "template_options": {"enable_thinking": thinking},
            }
            expected = unforced.generate(ask.messages, **options)
            result = loaded.generate(ask.messages, **options)
            assert result.tokens == expected.tokens
            assert (result.finish_reason, result.faults) == ("stop", [])
            jsonschema.validate(json.loads(result.text.rpartition("</think>")[2]), CALL)


def test_drafts_beyond_the_end_of_the_grammar_are_refused() -> None:
    """Without an end-of-turn id the mask cannot rule them out, and the model wants them."""
    with engine(plugins=["spec-ngram", "constrain"]) as loaded:
        (letter,) = loaded.tokenizer.encode("a", add_special_tokens=False)
        result = loaded.generate(
            [letter] * 20,
            schema={"regex": "[ab]{7}"},
            logit_bias={letter: 50.0},
            eos_token_ids=(),
        )
    assert (result.text, result.finish_reason) == ("a" * 7, "stop")
    assert result.stats.spec["accepted"] > 0


def test_a_scaffold_that_the_grammar_forbids_does_not_come(ask: Ask) -> None:
    """fill-strict would append how a call goes on; the grammar wants something else there."""
    odd = {"lark": 'start: <tool_call> "\\n" /[a-z ]{5,20}/'}
    with engine(plugins=["fill-strict", "constrain"]) as loaded:
        free = loaded.generate(ask.messages, tools=ask.tools, **NO_THINKING)
        held = loaded.generate(ask.messages, tools=ask.tools, schema=odd, **NO_THINKING)
    with engine() as loaded:
        alone = loaded.generate(ask.messages, tools=ask.tools, schema=odd, **NO_THINKING)
    assert free.stats.fill["injected_from"]["template"] > 4
    assert held.tokens[0] == free.tokens[0]
    assert held.tokens == alone.tokens
    assert 5 <= len(held.text.removeprefix("<tool_call>\n")) <= 20


def test_a_resumed_reply_goes_on_in_its_grammar(ask: Ask, tmp_path: Path) -> None:
    options: dict[str, Any] = {"schema": CALL, "seed": 3, "temperature": 0.8, **NO_THINKING}
    with engine() as loaded:
        expected = loaded.generate(ask.messages, **options)
        file = tmp_path / "reply.ckpt"
        for count in (3, len(expected.tokens) // 2):
            loaded.generate(ask.messages, **options, max_tokens=count, checkpoint=file)
            assert loaded.resume(file, max_tokens=-1).result().tokens == expected.tokens


def test_the_command_line_holds_replies(capfd: pytest.CaptureFixture[str]) -> None:
    asked = ["generate", "--model", "tiny", "--raw", "--quiet", "--plugins", "constrain"]
    assert main([*asked, "--schema", '{"enum": ["yes", "no"]}', "Is it? "]) == 0
    assert capfd.readouterr().out.strip() in {'"yes"', '"no"'}
    assert main([*asked, "--regex", "[0-9]{4}", "In "]) == 0
    assert len(capfd.readouterr().out.strip()) == 4
    assert main([*asked, "--schema", '{"not": {}}', "Is it? "]) == 2
    told = capfd.readouterr()
    assert told.err == 'error: --schema cannot be used: Unimplemented keys: ["not"]\n'
    assert main([*asked, "--regex", "(", "Is it? "]) == 2
    assert capfd.readouterr().err.startswith("error: --regex cannot be used: ")
    assert main([*asked[:-1], "spec-ngram", "--regex", "a", "Is it? "]) == 2
    assert capfd.readouterr().err == (
        "error: --regex needs a plugin that holds replies to it: constrain is installed, but off: "
        "list it in [plugins] enabled or in --plugins\n"
    )
