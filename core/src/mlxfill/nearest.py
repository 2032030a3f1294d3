"""The known name that someone who wrote an unknown one may have meant."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``"; did you mean 'x'?"`` for the known name nearest to ``name``, or nothing."""
    near = get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def full_names(word: str, installed: Iterable[str]) -> list[str]:
    """The installed plugin of this name, else all whose names end in these words."""
    installed = sorted(installed)
    return [word] if word in installed else [n for n in installed if n.endswith(f"-{word}")]


def plugin_meant(name: str, installed: Iterable[str]) -> str | None:
    """The installed plugin that ``name`` was surely meant to be.

    A plugin may be called by its last words (``ngram``) and by its distribution; that two plugins
    begin alike (``my-strict``, ``my-echo``) makes none of them a slip for the other.
    """
    called: dict[str, str] = {}
    for plugin in sorted(installed):
        words = f"mlxfill-{plugin}".split("-")
        called |= {"-".join(words[first:]): plugin for first in range(len(words))}
    called |= {plugin: plugin for plugin in installed}
    near = get_close_matches(name, list(called), n=1, cutoff=0.8)
    return called[near[0]] if near else None
