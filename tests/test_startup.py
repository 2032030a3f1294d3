"""What a start does and leaves undone: counted, not timed."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import mlx_lm
import pytest
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

import mlxfill
from mlxfill_model_tiny.folders import FOLDERS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TOKENS = 8
ASK = [{"role": "user", "content": "Which files changed?"}]


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No config and no cost curve of whoever runs the tests."""
    for variable in ("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(variable, str(tmp_path))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Callable[[type, str], Counter[str]]:
    """Counts the calls of methods."""
    counted: Counter[str] = Counter()

    def count(owner: type, name: str) -> Counter[str]:
        plain = getattr(owner, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            counted[name] += 1
            return plain(*args, **kwargs)

        monkeypatch.setattr(owner, name, call)
        return counted

    return count


def test_a_short_reply_needs_hardly_more_forwards_than_its_tokens(
    calls: Callable[[type, str], Counter[str]],
) -> None:
    """One to try the model, one for all of the prompt but its last token, then one a token."""
    body = type(mlx_lm.load(str(FOLDERS["tiny"]))[0].model)
    forwards = calls(body, "__call__")
    with mlxfill.load("tiny") as engine:
        result = engine.generate(ASK, max_tokens=TOKENS, eos_token_ids=())
    assert len(result.tokens) == TOKENS
    assert forwards["__call__"] <= 1 + 1 + TOKENS


def test_the_vocabulary_is_read_by_mlx_lm_alone(
    calls: Callable[[type, str], Counter[str]],
) -> None:
    read = calls(PreTrainedTokenizerFast, "get_vocab")
    mlx_lm.load(str(FOLDERS["tiny"]))
    of_mlx_lm = read.pop("get_vocab")
    with mlxfill.load("tiny") as engine:
        engine.generate(ASK, max_tokens=TOKENS)
    assert read["get_vocab"] == of_mlx_lm


def test_a_request_without_tools_renders_the_template_once(
    calls: Callable[[type, str], Counter[str]],
) -> None:
    rendered = calls(PreTrainedTokenizerBase, "apply_chat_template")
    with mlxfill.load("tiny") as engine:
        assert not rendered
        for number in (1, 2):
            engine.generate(ASK, max_tokens=TOKENS)
            assert rendered["apply_chat_template"] == number


def imported(*arguments: str) -> set[str]:
    """The modules that a command imports."""
    code = (
        "import sys; from mlxfill.cli import main; main(sys.argv[1:]); "
        "print('modules', *sorted(sys.modules))"
    )
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_generating_imports_what_answers_and_nothing_else() -> None:
    names = imported("generate", "--model", "tiny", "--max-tokens", str(TOKENS), "Hello")
    assert {"mlxfill.cli.generate", "mlxfill.decode.loop"} <= names
    unused = {
        *("mlxfill.cli.chat", "mlxfill.cli.audit", "mlxfill.cli.resume", "mlxfill.cli.plugins"),
        *("mlxfill.checkpoint.checkpoint", "mlxfill.checkpoint.content", "mlxfill.resume.keeper"),
        *("mlxfill.batch.scheduler", "mlxfill.forward.batch_runner", "mlxfill.audit.audit"),
        *("mlxfill_serve.app", "mlxfill_bench.measuring", "llguidance", "starlette"),
        *("uvicorn", "matplotlib", "scipy", "hypothesis", "pytest"),
    }
    assert not unused & names


def test_help_of_a_command_imports_no_other() -> None:
    names = imported("doctor", "--help")
    assert "mlxfill.cli.doctor.command" in names
    assert not {"mlxfill.cli.chat", "mlxfill.cli.generate", "mlx", "transformers"} & names
