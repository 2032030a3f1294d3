"""Generated parts of the documentation say what the code says, and the code does what they say."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from mlx_lm.models.cache import KVCache

import mlxfill
from mlxfill.testing import tiny_folder
from mlxfill.testing.installed import FakeSite

if TYPE_CHECKING:
    from types import ModuleType

TOOLS = Path(__file__).parents[1] / "tools"
PAGES = ("docs/hooks.md", "docs/config.md")


@pytest.fixture
def reference(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """``tools/reference.py`` as a module."""
    monkeypatch.syspath_prepend(TOOLS)
    return import_module("reference")


@pytest.mark.parametrize("page", PAGES)
def test_generated_parts_are_up_to_date(page: str, reference: ModuleType) -> None:
    said = (TOOLS.parent / page).read_text("utf-8")
    assert said == reference.current(page), "run: python tools/reference.py"


def test_every_setting_is_explained(reference: ModuleType) -> None:
    assert reference.config_page.undocumented() == []


def test_every_hook_is_explained(reference: ModuleType) -> None:
    hooks = list(reference.hooks_page.hooks())
    assert {hook.name for hook in hooks} == {
        name for name in vars(mlxfill.hookspecs) if name.startswith("mlxfill_")
    }
    assert all(hook.spec.__doc__ for hook in hooks)


class Unheard(KVCache):
    """A cache entry of a kind that the core does not know."""

    def is_trimmable(self) -> bool:
        return False


def test_hooks_fire_in_the_order_of_the_diagram(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reference: ModuleType
) -> None:
    monkeypatch.syspath_prepend(tmp_path / "site")
    hooks = list(reference.hooks_page.hooks())
    folder = tiny_folder(tmp_path / "model")
    (folder / "mtp").mkdir()  # makes the engine ask who can draft with it
    lines = ["import mlxfill", "MLXFILL_API = 1", "CALLED = []"]
    for hook in hooks:
        resolves = hook.name == "mlxfill_resolve_model"
        answer = f"__import__('pathlib').Path({str(folder)!r})" if resolves else "None"
        lines += [
            "@mlxfill.hookimpl",
            f"def {hook.signature}:",
            f"    CALLED.append({hook.name!r})",
            f"    return {answer}",
        ]
    site = FakeSite(tmp_path / "site")
    module = site.add("recorder", "\n".join(lines))
    with mlxfill.load("a model", plugins=["recorder"], config={}) as engine:
        caches: Any = [cast("Any", Unheard)() for _ in engine.target.new_cache()]
        engine.generate([5, 6, 7], max_tokens=1, prompt_cache=caches)
    called = list(dict.fromkeys(sys.modules[module].CALLED))
    site.forget()
    apart = {"mlxfill_register_commands", "mlxfill_constraint"}  # a command, a schema
    assert called == [hook.name for hook in hooks if hook.name not in apart]
