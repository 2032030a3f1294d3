"""What the tests of the model commands share: a model folder, and a way to run a command."""

from __future__ import annotations

import io
import json
import sys
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import pytest
from attrs import frozen
from mlx.utils import tree_flatten

from mlxfill.cli import main
from mlxfill_testing import ARCHITECTURES, tiny_model, tiny_tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@frozen
class Outcome:
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def complaint(self) -> str:
        """The one line of an error."""
        (line,) = self.err.splitlines()
        assert line.startswith("error: ")
        return line.removeprefix("error: ")


@pytest.fixture(autouse=True)
def own_caches(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Cost curves stay in the folder of the test, and mlx computes where results are exact."""
    mx.set_default_device(mx.cpu)
    monkeypatch.setenv("XDG_CACHE_HOME", str(workplace / "cache"))
    return workplace


@pytest.fixture
def run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Outcome]:
    """``run("generate", "hello", stdin="")``."""

    def run(*arguments: str, stdin: str | bytes = "") -> Outcome:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), "utf-8"))
        code = main(arguments)
        outcome = Outcome(code, *capsys.readouterr())
        assert "Traceback" not in outcome.err
        return outcome

    return run


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a tiny random model with a tokenizer and a chat template."""
    return str(save_model(tmp_path_factory.mktemp("model"), head_dim=32))


def save_model(folder: Path, **changes: Any) -> Path:
    """Write a model as mlx-lm reads it."""
    config = {**ARCHITECTURES["llama"], "model_type": "llama", "eos_token_id": 0, **changes}
    weights = dict(tree_flatten(tiny_model("llama", **changes).parameters()))
    mx.save_safetensors(str(folder / "model.safetensors"), weights, {"format": "mlx"})
    (folder / "config.json").write_text(json.dumps(config))
    tiny_tokenizer()._tokenizer.save_pretrained(folder)
    return folder
