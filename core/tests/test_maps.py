"""The docstring of a package is a map: it names every module of it."""

from __future__ import annotations

import re
from importlib import import_module
from pkgutil import iter_modules

import pytest


@pytest.mark.parametrize(
    "package", ["config", "engine", "model", "plugins", "policy", "rewind", "rows", "tool_calls"]
)
def test_the_docstring_of_a_package_names_its_modules(package: str) -> None:
    module = import_module(f"mlxfill.{package}")
    named = set(re.findall(r"\w+", module.__doc__ or ""))
    assert {found.name for found in iter_modules(module.__path__)} - named == set()
