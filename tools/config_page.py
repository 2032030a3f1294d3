"""The config reference of ``docs/config.md``, from the settings classes of core and plugins.

A class docstring tells what its keys mean.  A sentence that begins with ``key``: or
``key``, ``other``: is about those keys, any other one about the keys that it names, or, when it
names none, about those of the sentence before it.
"""

from __future__ import annotations

import inspect
import re
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

import attrs

from mlxfill.config import Config
from mlxfill.config.annotations import NO_KEY, TABLES, in_words, key_of
from mlxfill.config.sections import Generation
from pages import ROOT, as_markdown

if TYPE_CHECKING:
    from collections.abc import Iterator

CODE = re.compile(r"``(\w+)``")
SENTENCE = re.compile(r"(?<=\.)\s+(?=``|[A-Z])")
ABOUT = re.compile(r"((?:``\w+``(?: \(``\w+`` in the file\))?(?:, )?)+):\s")
ABSENT = re.compile(r"\bNone\b")
"""A file cannot say None: its key is left out."""
LEGAL = re.compile(r"must be (.+?), not ")
SHORT = (
    (r"^a whole number, (?=\d)", ""),
    (r"a whole number", "integer"),
    (r"^a number, (?=\d)", ""),
    (r"a number", "number"),
    (r",? (of )?at least ", " ≥ "),
    (r",? above ", " > "),
    (r" from ", " "),
    (r"true or false", "boolean"),
    (r"a list of text", "list of strings"),
    (r"\btext(?!')", "string"),
    (r"a table", "table"),
    (r"'", '"'),
)
"""What rules say in a sentence, as a table has it."""
ELSEWHERE = "Defaults of the [options](api.md#options) and [sampling](api.md#sampling) so named"
ILLEGAL: tuple[object, ...] = (-(10**9), "\0", 1.5)
"""Values that rules refuse, with an error that says what would be legal."""


def reference() -> str:
    """A list for the top level, each section and each plugin."""
    sections = [("Top level", "", Config), *_sections(), *_plugins()]
    return "\n\n".join(_section(*section) for section in sections)


def undocumented() -> list[str]:
    """Keys of which no docstring says what they mean."""
    sections = [("", "", Config), *_sections(), *_plugins()]
    return [f"{at}.{key}" for _, at, kind in sections for key, text in _keys(kind) if not text]


def _sections() -> Iterator[tuple[str, str, type]]:
    attrs.resolve_types(Config)
    for attribute in attrs.fields(Config):
        if attrs.has(attribute.type or object):
            yield f"`[{attribute.name}]`", attribute.name, cast("type", attribute.type)


def _plugins() -> Iterator[tuple[str, str, type]]:
    for folder in sorted(ROOT.glob("plugins/*/pyproject.toml")):
        name = folder.parent.name
        module = import_module(f"mlxfill_{name}.plugin")
        if hasattr(module, "mlxfill_settings"):
            plugin = name.replace("_", "-")
            yield f"`[plugins.{plugin}]`", f"plugins.{plugin}", module.mlxfill_settings()


def _section(title: str, _: str, kind: type) -> str:
    attrs.resolve_types(kind)
    fields = {key_of(a): a for a in attrs.fields(kind)}
    rows: dict[tuple[str, ...], list[str]] = {}
    for key, said in _keys(kind):
        text = "" if key in _said_elsewhere(kind) else said
        alike = (_shortly(_legal(fields[key])), text, "" if text else key)
        rows.setdefault(alike, []).append(key)
    lines = [f"### {title}", ""]
    if _said_elsewhere(kind):
        lines += [f"{ELSEWHERE}:", ""]
    for (legal, text, _), keys in rows.items():
        names = ", ".join(f"`{key}`" for key in keys)
        default = ", ".join(filter(None, (_default(fields[key]) for key in keys)))
        lines.append(f"- {names} ({legal}{default and '; '}{default}){text and ': '}{text}")
    return "\n".join(lines)


def _said_elsewhere(kind: type) -> set[str]:
    """Keys that are options of a request."""
    return {each.name for each in attrs.fields(kind)} if kind is Generation else set()


def _shortly(legal: str) -> str:
    for pattern, short in SHORT:
        legal = re.sub(pattern, short, legal)
    return legal


def _keys(kind: type) -> list[tuple[str, str]]:
    """Each key of a class and what it means."""
    attrs.resolve_types(kind)
    told = _told(inspect.getdoc(kind) or "")
    return [
        (key_of(a), ABSENT.sub("absent", as_markdown(" ".join(told.get(a.name, ())))))
        for a in attrs.fields(kind)
        if NO_KEY not in a.metadata and TABLES not in a.metadata and not attrs.has(a.type or object)
    ]


def _told(docstring: str) -> dict[str, list[str]]:
    told: dict[str, list[str]] = {}
    about: list[str] = []
    for sentence in SENTENCE.split(docstring):
        opening = ABOUT.match(sentence)
        about = CODE.findall(opening[1] if opening else sentence) or about
        if opening:
            sentence = sentence[opening.end() :]  # noqa: PLW2901 - the keys stand in their own column
        for key in dict.fromkeys(about):
            told.setdefault(key, []).append(sentence)
    return told


def _legal(attribute: attrs.Attribute[Any]) -> str:
    """What may stand there: as the rule says it, else as the type does."""
    words = in_words(attribute.type).replace("'", '"')
    rule: Any = attribute.validator
    for value in ILLEGAL if rule is not None and '"' not in words else ():
        with suppress(TypeError):
            try:
                rule(None, attribute, value)
            except ValueError as error:
                found = LEGAL.search(str(error))
                if found and found[1] != words:
                    return found[1] if words in found[1] else f"{words}, {found[1]}"
    return words


def _default(attribute: attrs.Attribute[Any]) -> str:
    value: Any = attribute.default
    if hasattr(value, "factory"):
        value = value.factory()
    if value is attrs.NOTHING:
        return "needed"
    if value is None:
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        return f"`{list(value)}`".replace("'", '"')
    return f"`{value!r}`".replace("'", '"')
