"""The tiny target with each of its drafters: the same text in fewer forwards."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

import mlxfill
from mlxfill import DrafterError, Engine, MlxfillError, PluginError
from mlxfill.cli import main
from mlxfill_model_tiny import Ask, held_out_asks
from mlxfill_testing import shared_model, tiny_tokenizer

# Windows and steps are bit-identical on the CPU with the BLAS of the wheel, not on every GPU.
mx.set_default_device(mx.cpu)

FREE = {"gate": {"enabled": False}}
PLUGIN = {
    "tiny-draft": "spec-two-model",
    "tiny-mtp": "spec-qwen-mtp",
    "tiny-dflash": "spec-dflash",
}
FEWEST = {"tiny-draft": 3.3, "tiny-mtp": 2.5, "tiny-dflash": 2.0}
"""Tokens a round on the asks below, with 3, 2 and 7 drafts."""
ASK = "Please read the file notes.txt"

each_draft = pytest.mark.parametrize("draft", PLUGIN)


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is read from or written to the user's own folders."""
    for variable in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def asks() -> list[Ask]:
    return held_out_asks(5)


@pytest.fixture(scope="module")
def plain() -> Iterator[Engine]:
    with mlxfill.load("tiny", plugins=[], config=FREE) as engine:
        yield engine


def drafted(draft: str, **options: Any) -> Engine:
    return mlxfill.load("tiny", draft=draft, plugins=[PLUGIN[draft]], config=FREE, **options)


@each_draft
def test_a_turn_takes_fewer_forwards_and_says_the_same(
    draft: str, plain: Engine, asks: list[Ask]
) -> None:
    lengths: list[int] = []
    with drafted(draft) as engine:
        for ask in asks:
            result = engine.generate(ask.messages, tools=ask.tools, max_tokens=200)
            assert result.faults == []
            assert result.tokens == plain.generate(ask.messages, tools=ask.tools).tokens
            lengths += result.stats.spec["acceptance_lengths"]
    assert 1 + sum(lengths) / len(lengths) > FEWEST[draft]


@each_draft
@pytest.mark.parametrize("temperature", [0.7, 1.2])
def test_sampled_turns_are_the_same_too(
    draft: str, temperature: float, plain: Engine, asks: list[Ask]
) -> None:
    options: dict[str, Any] = {"temperature": temperature, "max_tokens": 60, "top_p": 0.95}
    with drafted(draft) as engine:
        for seed, ask in enumerate(asks):
            ours = engine.generate(ask.messages, tools=ask.tools, seed=seed, **options)
            theirs = plain.generate(ask.messages, tools=ask.tools, seed=seed, **options)
            assert ours.tokens == theirs.tokens


@each_draft
def test_fills_and_drafts_share_a_turn(draft: str, plain: Engine, asks: list[Ask]) -> None:
    """Others' tokens reach the drafter: it goes on being right."""
    origins: set[str] = set()
    names = ["fill-strict", "spec-ngram", PLUGIN[draft]]
    config = {**FREE, "plugins": {"fill-strict": {"policy": "verify"}}}
    with mlxfill.load("tiny", draft=draft, plugins=names, config=config) as engine:
        for ask in asks:
            result = engine.generate(ask.messages, tools=ask.tools, max_tokens=200)
            assert result.faults == []
            assert result.tokens == plain.generate(ask.messages, tools=ask.tools).tokens
            origins |= set(result.origins)
    assert origins >= {"mtp" if draft == "tiny-mtp" else "draft", "ngram", "sampled"}


@each_draft
def test_the_command_line_drafts(draft: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["generate", "--model", "tiny", "--draft", draft, "--json", "--max-tokens", "40"]
    assert main([*arguments, "--num-draft-tokens", "2", ASK]) == 0
    spec = json.loads(capsys.readouterr().out)["stats"]["spec"]
    assert spec["drafter"] == PLUGIN[draft]
    assert len(spec["drafted_by_position"]) == 2


def test_phases_are_shown_on_demand(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["generate", "--model", "tiny", "--draft", "tiny-mtp", "--max-tokens", "8", ASK]
    assert main([*arguments, "--phase-times"]) == 0
    said = capsys.readouterr().err
    assert all(f"{phase} " in said for phase in ("ms: draft", "verify", "sample", "commit"))
    assert main(arguments) == 0
    assert "ms: " not in capsys.readouterr().err


@each_draft
def test_what_a_draft_costs_is_measured_once_it_is_prepared_for(draft: str) -> None:
    with mlxfill.load("tiny", draft=draft, plugins=[PLUGIN[draft]], config={}) as engine:
        assert engine.drafter is not None
        engine.prepare()
        assert (engine.drafter.cost or 0) > 0


@each_draft
def test_an_audit_says_identical(draft: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "--model", "tiny", "--draft", draft, "--max-tokens", "40", ASK]) == 0
    assert "identical to plain decoding: yes" in capsys.readouterr().out


# --- refusals -------------------------------------------------------------------------------


def one_line(error: MlxfillError) -> str:
    assert "\n" not in str(error)
    return str(error)


@each_draft
def test_without_its_plugin_a_drafter_is_refused_with_the_plugin_to_switch_on(draft: str) -> None:
    with pytest.raises(PluginError) as caught:
        mlxfill.load("tiny", draft=draft, plugins=["spec-ngram"])
    message = one_line(caught.value)
    assert PLUGIN[draft] in message
    assert message.endswith(" is installed, but off: list it in [plugins] enabled or in --plugins")


@pytest.mark.parametrize("kind", ["two-model", "qwen-mtp", "mtp"])
def test_a_kind_whose_plugin_is_off_is_named_with_that_plugin(kind: str) -> None:
    with pytest.raises(PluginError) as caught:
        mlxfill.load("tiny", draft="tiny-draft", draft_kind=kind, plugins=[])
    plugin = "spec-two-model" if kind == "two-model" else "spec-qwen-mtp"
    assert f"; {plugin} is installed, but off: " in one_line(caught.value)


def test_a_slip_in_a_kind_is_no_advice_to_install_something() -> None:
    for kind, said in (("ngrm", "did you mean 'ngram'?"), ("foo", "two-model)")):
        with pytest.raises(PluginError) as caught:
            mlxfill.load("tiny", draft_kind=kind, config={})
        message = one_line(caught.value)
        assert message.endswith(said)
        assert "pip" not in message


def test_the_kind_may_be_given(asks: list[Ask]) -> None:
    with drafted("tiny-mtp", draft_kind="qwen-mtp") as engine:
        spec = engine.generate(asks[0].messages, tools=asks[0].tools, max_tokens=9).stats.spec
    assert spec["drafter"] == "spec-qwen-mtp"
    with pytest.raises(DrafterError, match="needs a draft model: --draft PATH"):
        mlxfill.load("tiny", draft_kind="two-model", plugins=["spec-two-model"])


@pytest.mark.parametrize(
    ("draft", "wrong", "right"),
    [("tiny-mtp", "two-model", "qwen-mtp"), ("tiny-draft", "qwen-mtp", "two-model")],
)
def test_a_wrong_kind_is_told_with_the_right_one(draft: str, wrong: str, right: str) -> None:
    with pytest.raises(DrafterError, match=f"; it is of the kind '{right}': leave out") as caught:
        mlxfill.load("tiny", draft=draft, draft_kind=wrong, plugins=[*PLUGIN.values()], config=FREE)
    one_line(caught.value)


def other_engine(draft: str) -> Engine:
    """The drafter on a target that it was not made for."""
    manager: Any = [PLUGIN[draft], "model-tiny"]
    return Engine(shared_model("llama"), tiny_tokenizer(), plugins=manager, draft=draft)


@pytest.mark.parametrize("draft", ["tiny-mtp", "tiny-dflash"])
def test_a_foreign_hidden_size_is_refused(draft: str) -> None:
    with pytest.raises(DrafterError, match="hidden size 128, the target has 64") as caught:
        other_engine(draft)
    one_line(caught.value)


def test_a_foreign_tokenizer_is_refused() -> None:
    with pytest.raises(DrafterError, match="in other tokens than the target") as caught:
        other_engine("tiny-draft")
    one_line(caught.value)
