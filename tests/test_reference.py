"""Generated parts of the documentation say what the code says, and the code does what they say."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from mlx_lm.models.cache import KVCache

import mlxfill
from mlxfill_testing import tiny_folder
from mlxfill_testing.installed import FakeSite

if TYPE_CHECKING:
    from types import ModuleType

TOOLS = Path(__file__).parents[1] / "tools"
PAGES = ("docs/api.md", "docs/hooks.md", "docs/contracts.md", "docs/config.md", "docs/serve.md")


@pytest.fixture
def reference(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """``tools/reference.py`` as a module."""
    monkeypatch.syspath_prepend(TOOLS)
    return import_module("reference")


@pytest.mark.parametrize("page", PAGES)
def test_generated_parts_are_up_to_date(page: str, reference: ModuleType) -> None:
    said = (TOOLS.parent / page).read_text("utf-8")
    assert said == reference.current(page), "run: python tools/reference.py"


def test_the_drawing_is_up_to_date(reference: ModuleType) -> None:
    drawn = reference.way_drawing.drawing()
    assert reference.way_drawing.FILE.read_text("utf-8") == drawn, "run: python tools/reference.py"


def test_how_it_works_names_every_folder_of_the_core(reference: ModuleType) -> None:
    folders = {each.parent.name for each in Path(mlxfill.__file__).parent.glob("*/__init__.py")}
    page = (TOOLS.parent / "docs" / "how-it-works.md").read_text("utf-8")
    assert [name for name in folders if f"`{name}`" not in page] == []
    drawn = {name for box in reference.way_drawing.BOXES for name in re.split(r", | \+ ", box.name)}
    assert folders - drawn == {"batch", "decode", "stats"}, "frame and captions have two of them"


def test_every_setting_is_explained(reference: ModuleType) -> None:
    assert reference.config_page.undocumented() == []


def test_every_member_on_the_page_of_the_api_is_explained(reference: ModuleType) -> None:
    assert reference.api_page.unexplained() == []


def test_every_hook_is_explained(reference: ModuleType) -> None:
    hooks = list(reference.hooks_page.hooks())
    assert {hook.name for hook in hooks} == {
        name for name in vars(mlxfill.hookspecs) if name.startswith("mlxfill_")
    }
    assert all(hook.spec.__doc__ for hook in hooks)


def handed_over() -> dict[str, Any]:
    """Every class of mlxfill that hooks name, or that another one of them names, by its name."""
    classes: dict[str, Any] = {}
    sources = [inspect.getsource(mlxfill.hookspecs)]
    while sources:
        nodes = ast.walk(ast.parse(sources.pop()))
        names = {node.id for node in nodes if isinstance(node, ast.Name)} - set(classes)
        named = {name: getattr(mlxfill, name) for name in names & set(mlxfill.__all__)}
        found = {
            n: kind for n, kind in named.items() if isinstance(kind, type) and n[-5:] != "Error"
        }
        classes |= found
        sources += map(inspect.getsource, found.values())
    return classes


def test_every_object_that_a_plugin_makes_or_is_handed_is_on_the_page_of_contracts() -> None:
    pages = [
        (TOOLS.parent / "docs" / f"{name}.md").read_text("utf-8") for name in ("contracts", "api")
    ]
    told = dict(
        part.split("`\n", 1) for part in re.split("\n###? `", "\n".join(pages))[1:] if "`\n" in part
    )
    classes = handed_over()
    assert {"Request", "TokenView", "DraftRows", "LayerReplay", "Sampling"} < set(classes)
    assert {"Proposal", "ProposalSource", "DraftCheckpoint", "TargetView"} < set(classes)
    for name, kind in classes.items():
        members = {*vars(kind), *getattr(kind, "__annotations__", {})}
        public = {each for each in members if not each.startswith("_")}
        for member in public:
            assert re.search(rf"^- `{member}\b", told[name], re.MULTILINE), (name, member)
            is_explained = re.search(rf"^- `{member}\b.+?`: ", told[name], re.MULTILINE)
            by_its_class = f"`{member}" in told[name].split("\n- ", 1)[0]
            assert is_explained or by_its_class, (name, member)


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
    lines = ["import mlxfill", "MLXFILL_API = 2", "CALLED = []"]
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
