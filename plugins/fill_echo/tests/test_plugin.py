"""The plugin inside an engine: it changes how fast the text comes and nothing else."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import pytest
from attrs import evolve

import mlxfill_fill_echo
from mlxfill_fill_echo import EchoSettings, plugin
from mlxfill_testing import Guest, engine_with, shared_model

if TYPE_CHECKING:
    from mlxfill import Engine, Result

mx.set_default_device(mx.cpu)

PROMPT = [5, 9, 14, 21, 7, 30, 11, 2] * 6
SETTINGS = EchoSettings(k=1)


def echo(settings: EchoSettings = SETTINGS) -> Guest:
    """The plugin with settings of a test."""
    return Guest(
        name="fill-echo",
        sources=[lambda request: plugin.mlxfill_proposal_sources(request, settings)[0]],
    )


def engine(name: str, *guests: Guest, **options: Any) -> Engine:
    return engine_with(shared_model(name), *guests, **options)


def answered(engine: Engine, **options: Any) -> Result:
    with engine:
        result = engine.generate(PROMPT, max_tokens=60, eos_token_ids=[], **options)
    assert result.faults == []
    return result


@pytest.fixture(autouse=True)
def no_sessions() -> None:
    mlxfill_fill_echo.forget_all_sessions()


@pytest.mark.parametrize("temperature", [0.0, 0.6])
@pytest.mark.parametrize("name", ["llama", "qwen3_5", "gemma3_text"])
def test_the_text_is_that_of_plain_decoding(name: str, temperature: float) -> None:
    plain = answered(engine(name), temperature=temperature, seed=3)
    echoed = answered(engine(name, echo()), temperature=temperature, seed=3)
    assert echoed.tokens == plain.tokens
    assert echoed.stats.spec["offers"] > 0


def test_a_loop_is_echoed_in_fewer_forwards() -> None:
    plain, echoed = answered(engine("llama")), answered(engine("llama", echo()))
    assert echoed.tokens == plain.tokens
    assert "echo" in echoed.origins
    assert echoed.stats.target_forwards < plain.stats.target_forwards


@pytest.mark.parametrize(
    ("asserts", "trusted", "injects"),
    [(True, True, True), (True, False, False), (False, True, False)],
)
def test_asserts_need_the_setting_and_the_trust(
    *, asserts: bool, trusted: bool, injects: bool
) -> None:
    guest = echo(evolve(SETTINGS, assert_=asserts))
    names = [guest.name] if trusted else []
    result = answered(engine("llama", guest, trusted=names), delimiters=[4])
    assert (result.stats.fill["injected"] > 0) == injects


def test_a_prompt_that_is_asked_again_in_a_session_is_answered_from_its_last_reply() -> None:
    with engine("llama", echo(EchoSettings(k=2))) as open_engine:
        first, alone, again = (
            open_engine.generate([40, 41, 42, 43], session=session, max_tokens=12, eos_token_ids=[])
            for session in ("a", None, "a")
        )
    assert first.tokens == alone.tokens == again.tokens
    assert first.stats.target_forwards == alone.stats.target_forwards
    assert again.stats.target_forwards < alone.stats.target_forwards


def test_a_session_can_be_erased() -> None:
    with engine("llama", echo()) as open_engine:
        open_engine.generate(PROMPT, max_tokens=4, eos_token_ids=[], session="a")
    assert mlxfill_fill_echo.remembered_sessions() == {"a": len(PROMPT) + 4}
    assert mlxfill_fill_echo.forget_session("a")
    assert mlxfill_fill_echo.remembered_sessions() == {}


def test_the_settings_class_is_declared() -> None:
    assert plugin.mlxfill_settings() is EchoSettings


def test_the_entry_point_imports_no_heavy_library() -> None:
    script = (
        "import sys, mlxfill_fill_echo.plugin as plugin;"
        "heavy = {'mlx', 'mlx_lm', 'numpy', 'transformers'};"
        "print(sorted(heavy & set(sys.modules)), plugin.MLXFILL_API)"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["[]", "2"]
