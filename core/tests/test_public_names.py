from __future__ import annotations

import ast
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import mlxfill

HEAVY = {"attrs", "cattrs", "mlx", "mlx_lm", "numpy", "pluggy", "rich", "transformers", "typer"}


def loaded_after(code: str) -> set[str]:
    show = "import sys; print(*{name.split('.')[0] for name in sys.modules})"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{show}"], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_importing_mlxfill_imports_nothing_else() -> None:
    assert not HEAVY & loaded_after("import mlxfill")


def test_what_a_plugin_module_needs_does_not_import_mlx() -> None:
    code = "from mlxfill import MLXFILL_API, DraftKind, InputError, Policy, Proposal, hookimpl"
    assert not {"mlx", "mlx_lm", "numpy", "transformers"} & loaded_after(code)


@pytest.mark.parametrize("name", mlxfill.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(mlxfill, name) is getattr(mlxfill, name)
    assert name in dir(mlxfill)


def test_the_version_is_that_of_the_distribution() -> None:
    assert mlxfill.__version__ == version("mlxfill")
    assert "mlx" not in loaded_after("import mlxfill; mlxfill.__version__")


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse(Path(mlxfill.__file__).read_text("utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    seen = [
        alias for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names
    ]
    assert sorted(alias.name for alias in seen) == sorted(mlxfill.__all__)


def test_other_names_are_no_attributes() -> None:
    with pytest.raises(AttributeError, match="'nonsense'"):
        mlxfill.nonsense  # noqa: B018
