"""The docstring of a package is a map: it names every module of it."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest

import mlxfill

PACKAGES = [each.name for each in iter_modules(mlxfill.__path__) if each.ispkg]


@pytest.mark.parametrize("package", sorted({*PACKAGES} - {"cli"}))
def test_the_docstring_of_a_package_names_its_modules(package: str) -> None:
    module = import_module(f"mlxfill.{package}")
    named = set(re.findall(r"\w+", module.__doc__ or ""))
    assert {found.name for found in iter_modules(module.__path__)} - named == set()


@pytest.mark.parametrize("package", ["", *sorted(PACKAGES)])
def test_a_folder_is_taken_in_at_a_glance(package: str) -> None:
    folder = Path(import_module(f"mlxfill.{package}".rstrip(".")).__path__[0])
    sizes = {
        str(each.relative_to(folder)): len([*each.glob("*.py")]) - 1
        for each in (folder, *folder.rglob("*"))
        if (each / "__init__.py").exists()
    }
    assert {name: size for name, size in sizes.items() if size > 14} == {}
